"""Deciding where instances run: placements, replacement after a failure, facts of the nodes."""
