"""Readings of this machine: memory, disk, network, identity, accelerator, processes.

Knows the wire models and the operating system, nothing of the cluster or the API.
"""
