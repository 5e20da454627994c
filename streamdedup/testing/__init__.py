"""Memory broker and transport, and crash points: for tests and benchmarks."""
