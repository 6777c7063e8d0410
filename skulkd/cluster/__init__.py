"""Agreeing on one state: the reducer, what is derived from it, and the latest readings."""
