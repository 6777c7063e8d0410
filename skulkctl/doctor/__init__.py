"""`skulkctl doctor`: facts are gathered, checked by pure functions, and listed."""
