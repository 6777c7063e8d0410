"""Traces of requests: lists, timings and the waterfall."""
