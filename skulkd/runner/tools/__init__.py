"""Tool calls in a model's text: one module per format, `choose` to pick one. Pure."""
