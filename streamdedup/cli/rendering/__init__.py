"""Forms of the commands' output: terminal-safe text, pairs, differences of texts, dead letters, tables, charts."""
