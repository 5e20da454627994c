"""Texts to sets of 32-bit shingle hashes."""
