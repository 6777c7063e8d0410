"""Readings of this machine, against the real system and against recorded texts."""
