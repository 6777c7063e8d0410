"""A model in memory: reading it, cutting it for ranks, its key-value caches."""
