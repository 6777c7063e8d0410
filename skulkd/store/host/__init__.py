"""The store host: serves the store's models to the cluster and accepts uploads."""
