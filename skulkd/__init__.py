"""skulkd: the daemon that joins machines into one MLX inference cluster."""

__version__ = "0.1.0"
