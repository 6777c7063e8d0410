"""Model files: cards, imports, and what is on this machine's disk. Never imports MLX."""
