"""The typed client of skulkd: one description of each call, one connection, one table of errors.

No other module of skulkctl sends a request or reads a JSON key of the daemon.
"""
