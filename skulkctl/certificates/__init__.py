"""TLS certificates: making them, their files, what is shown of them, and whom a client trusts."""
