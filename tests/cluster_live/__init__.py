"""Whole clusters of real daemons: on loopback, and in network namespaces."""
