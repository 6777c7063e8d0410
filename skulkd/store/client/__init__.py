"""The client of the store host."""
