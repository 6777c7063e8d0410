"""Importing models into the models directory. Runs in child processes only."""
