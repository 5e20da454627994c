"""The long-running service: the loop over batches, recovery and rebuild, metrics and health, shutdown."""
