"""Embedding models: encoders and decoders, pooling, and the engine that batches inputs."""
