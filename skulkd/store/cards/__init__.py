"""Model cards: where they come from and how they are written and listed."""
