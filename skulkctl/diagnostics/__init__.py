"""`skulkctl diagnose`: what a node knows about itself, as a page."""
