"""Settings with which other programs use this cluster."""
