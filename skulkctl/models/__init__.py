"""Models: the catalogue as rows, finding one by name."""
