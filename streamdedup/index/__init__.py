"""Where the index lives: the contract (``contract``), its specification in memory, and Redis."""
