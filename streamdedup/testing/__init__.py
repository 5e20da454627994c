"""Memory broker, memory transport and crash points: used by tests and benchmarks only."""
