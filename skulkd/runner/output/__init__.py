"""From tokens to what a client gets."""
