"""Output for people: terminal-safe text, pairs, differences of two texts, dead letters, tables and charts."""
