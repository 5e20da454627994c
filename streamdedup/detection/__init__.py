"""Detection: documents in, verified matches out; writes to the index, and leaves publishing to the daemon."""
