"""Similarity of shingle sets: MinHash signatures, bands, sketches."""
