"""Text completions: the older sibling of chat, with a prompt instead of messages."""

from typing import Literal

from pydantic import Field

from skulkd.wire.base import SnakeModel
from skulkd.wire.chat import FinishReason, StreamOptions, Usage


class CompletionRequest(SnakeModel):
    model: str
    prompt: str | list[str] = Field(description="Raw text; no chat template is used.")
    echo: bool = False
    frequency_penalty: float | None = None
    logit_bias: dict[str, int] | None = None
    logprobs: int | None = Field(default=None, description="How many rivals of each token.")
    max_tokens: int | None = Field(default=None, description="16 when not given.")
    n: int | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    repetition_context_size: int | None = None
    user: str | None = None


class CompletionLogprobs(SnakeModel):
    """Four lists of the same length, one entry for each token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int] = Field(description="Where the token begins, in characters.")


class CompletionChoice(SnakeModel):
    text: str
    index: int
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None


class CompletionResponse(SnakeModel):
    """Whole answer, and also every frame of a stream."""

    id: str = Field(description="The command id, which `/v1/cancel` takes.")
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
