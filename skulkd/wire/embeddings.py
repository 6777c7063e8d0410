"""OpenAI's embeddings: request and answer."""

from typing import Literal

from pydantic import Field

from skulkd.wire.base import SnakeModel


class EmbeddingRequest(SnakeModel):
    model: str
    input: str | list[str] | list[int] | list[list[int]] = Field(
        description="One text or several; token ids of one text or of several."
    )
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="base64 is little-endian float32."
    )
    dimensions: int | None = Field(
        default=None, description="Shorter vectors, where the model's card allows them."
    )
    user: str | None = None


class EmbeddingObject(SnakeModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(SnakeModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(SnakeModel):
    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingUsage
