"""Ollama's API: requests, answers and errors. Unknown keys are ignored."""

from typing import Any, Literal

from pydantic import Field

from skulkd.wire.base import SnakeModel, UtcTime

OllamaRole = Literal["system", "user", "assistant", "tool"]
ThinkLevel = Literal["low", "medium", "high"]


class OllamaCall(SnakeModel):
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class OllamaMessageCall(SnakeModel):
    function: OllamaCall


class OllamaChatMessage(SnakeModel):
    role: OllamaRole
    content: str = ""
    thinking: str | None = Field(default=None, exclude_if=lambda value: value is None)
    images: list[str] | None = Field(default=None, exclude_if=lambda value: value is None)
    tool_calls: list[OllamaMessageCall] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    tool_name: str | None = Field(default=None, exclude_if=lambda value: value is None)


class OllamaRequestOptions(SnakeModel):
    """Those that mean something here; a client may send any other."""

    num_predict: int | None = Field(default=None, description="Negative: no limit of its own.")
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class OllamaRequest(SnakeModel):
    """What chat and generate have in common."""

    model: str
    stream: bool = True
    format: Literal["", "json"] | dict[str, Any] | None = None
    options: OllamaRequestOptions | None = None
    keep_alive: str | float | None = None
    think: bool | ThinkLevel | None = None


class OllamaChatRequest(OllamaRequest):
    messages: list[OllamaChatMessage] = Field(default_factory=list)
    tools: list[dict[str, Any]] | None = None


class OllamaGenerateRequest(OllamaRequest):
    prompt: str = ""
    system: str | None = None
    raw: bool = False
    images: list[str] | None = None
    suffix: str | None = None
    template: str | None = None
    context: list[int] | None = None


class OllamaFigures(SnakeModel):
    """At the end of an answer. Durations are nanoseconds."""

    done_reason: str | None = Field(default=None, exclude_if=lambda value: value is None)
    total_duration: int | None = Field(default=None, exclude_if=lambda value: value is None)
    load_duration: int | None = Field(default=None, exclude_if=lambda value: value is None)
    prompt_eval_count: int | None = Field(default=None, exclude_if=lambda value: value is None)
    prompt_eval_duration: int | None = Field(default=None, exclude_if=lambda value: value is None)
    eval_count: int | None = Field(default=None, exclude_if=lambda value: value is None)
    eval_duration: int | None = Field(default=None, exclude_if=lambda value: value is None)


class OllamaChatResponse(OllamaFigures):
    model: str
    created_at: UtcTime
    message: OllamaChatMessage
    done: bool


class OllamaGenerateResponse(OllamaFigures):
    model: str
    created_at: UtcTime
    response: str
    thinking: str | None = Field(default=None, exclude_if=lambda value: value is None)
    done: bool


class OllamaEmbedRequest(SnakeModel):
    model: str
    input: str | list[str] = ""
    truncate: bool | None = Field(
        default=None, description="false: refuse inputs that are too long instead of cutting them."
    )
    dimensions: int | None = None
    options: OllamaRequestOptions | None = None
    keep_alive: str | float | None = None


class OllamaEmbedResponse(SnakeModel):
    """Durations are nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class OllamaEmbeddingsRequest(SnakeModel):
    model: str
    prompt: str = ""
    options: OllamaRequestOptions | None = None
    keep_alive: str | float | None = None


class OllamaEmbeddingsResponse(SnakeModel):
    embedding: list[float]


class OllamaDetails(SnakeModel):
    parent_model: str = ""
    format: str
    family: str
    families: list[str]
    parameter_size: str = ""
    quantization_level: str


class OllamaModel(SnakeModel):
    name: str
    model: str
    modified_at: UtcTime
    size: int
    digest: str = Field(description="SHA-256 of the model's card.")
    details: OllamaDetails


class OllamaModels(SnakeModel):
    models: list[OllamaModel]


class OllamaRunningModel(SnakeModel):
    name: str
    model: str
    size: int
    digest: str
    details: OllamaDetails
    expires_at: UtcTime
    size_vram: int
    context_length: int


class OllamaRunningModels(SnakeModel):
    models: list[OllamaRunningModel]


class OllamaShowRequest(SnakeModel):
    model: str | None = None
    name: str | None = Field(default=None, description="Older name of `model`.")


class OllamaModelInfo(SnakeModel):
    modelfile: str
    parameters: str
    template: str
    details: OllamaDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: UtcTime


class OllamaVersion(SnakeModel):
    version: str = Field(description="Of Ollama's API as served here; clients compare it.")
    skulkd: str


class OllamaPullRequest(SnakeModel):
    model: str | None = None
    name: str | None = Field(default=None, description="Older name of `model`.")
    stream: bool = True


class OllamaProgress(SnakeModel):
    status: str
    digest: str | None = Field(default=None, exclude_if=lambda value: value is None)
    total: int | None = Field(default=None, exclude_if=lambda value: value is None)
    completed: int | None = Field(default=None, exclude_if=lambda value: value is None)


class OllamaError(SnakeModel):
    """Body of every error of these routes, and the last line of a stream that failed."""

    error: str
