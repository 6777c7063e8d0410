"""Asking models: one request, a conversation, what is shown of an answer."""
