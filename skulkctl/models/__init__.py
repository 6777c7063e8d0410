"""Models: the catalogue as rows, where models come from, and sending them to the cluster."""
