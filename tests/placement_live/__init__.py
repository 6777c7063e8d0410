"""Placing on clusters of real daemons."""
