"""Where the index lives: the contract (``base``), its specification in memory, and Redis."""
