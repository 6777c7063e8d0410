"""Nodes: their rows, and the status screen that sums them up."""
