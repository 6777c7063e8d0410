"""Making this machine match the state: which runners should run, and keeping them running."""
