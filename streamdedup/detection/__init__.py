"""Detection: documents in, verified matches out; computes, and leaves the effects to the daemon."""
