"""Files of models: copies on the nodes, purging them, and the shared store."""
