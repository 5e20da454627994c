"""The long-running service: transport, loop, shutdown."""
