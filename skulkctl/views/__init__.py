"""Pure functions from the daemon's JSON to the rows and documents that skulkctl shows.

They read tolerantly: a key that a stock node lacks becomes None, never an error.
"""
