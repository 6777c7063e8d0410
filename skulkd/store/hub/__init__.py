"""Downloads from a Hugging Face hub, each in a child process."""
