"""skulkd: the daemon that joins machines into one MLX inference cluster."""

__version__ = "0.2.0"

SERVER_NAME = "skulkd"
"""The `Server` header of every answer: a stock Skulk node says something else."""
