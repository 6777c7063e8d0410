"""skulkctl with models: placing, watching, asking, bringing files."""
