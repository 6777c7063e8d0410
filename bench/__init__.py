"""Measurements behind docs/performance.md; `python -m bench` runs all of them."""
