"""skulkctl: the operator's command line for a Skulk cluster."""
