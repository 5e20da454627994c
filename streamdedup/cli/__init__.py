"""The command line: a module for each command, which ``main`` imports when it is called, and what commands share."""
