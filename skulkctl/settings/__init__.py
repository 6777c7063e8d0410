"""The configuration of a node: its values as rows, and planning a change."""
