"""OpenAI's Responses API, translated to and from the chat pipeline."""
