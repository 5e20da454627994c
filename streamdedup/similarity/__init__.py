"""Similarity of shingle sets: MinHash, bands, sketches. Numbers or shapes that do not fit raise ValueError."""
