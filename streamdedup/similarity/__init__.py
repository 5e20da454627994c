"""Similarity of shingle sets: MinHash signatures, bands, sketches; ValueError for numbers or shapes that do not fit."""
