"""Staged copies: copying models from the store to this node, and evicting them."""
