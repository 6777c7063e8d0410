"""Ollama's API, translated to and from the chat pipeline."""
