"""The runner room: one child process per rank, the only place that imports MLX."""
