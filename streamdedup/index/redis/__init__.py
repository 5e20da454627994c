"""The index in Redis."""
