"""One module per command; each has an `app` and the same skeleton."""
