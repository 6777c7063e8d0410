"""Recorded Macs: their tools as real programs, alone and as a cluster."""
