"""Anthropic's Messages API, translated to and from the chat pipeline."""
