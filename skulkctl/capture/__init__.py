"""Capture bundles: evidence of an instance in one file, written before anything is changed."""
