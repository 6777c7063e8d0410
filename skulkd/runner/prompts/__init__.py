"""From messages to prompt text and tokens."""
