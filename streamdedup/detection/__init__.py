"""Detection: documents in, verified matches out. Writes to the index; the daemon publishes."""
