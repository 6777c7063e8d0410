"""The HTTP API of a node: one module per family of routes, and the plumbing they share."""
