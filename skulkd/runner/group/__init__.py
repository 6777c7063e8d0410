"""The ranks of one instance: how they find, authenticate and order each other."""
