"""Chat completions: request, answer, stream, statistics, and cancelling one."""

from typing import Any, Literal
from uuid import uuid4

from pydantic import Field

from skulkd.wire.base import Memory, SnakeModel, TaggedModel
from skulkd.wire.cards import ReasoningEffort
from skulkd.wire.ids import CommandId, NodeId

ChatRole = Literal["system", "user", "assistant", "developer", "tool", "function"]
ChunkObject = Literal["chat.completion.chunk", "chat.completion"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call", "error"]


class ChatCompletionMessageText(SnakeModel):
    type: Literal["text"] = "text"
    text: str


class ChatCompletionMessageImageUrl(SnakeModel):
    type: Literal["image_url"] = "image_url"
    image_url: dict[str, str] = Field(description="Key `url`: data:, http: or https:.")


ContentPart = ChatCompletionMessageText | ChatCompletionMessageImageUrl


class ToolCallItem(SnakeModel):
    id: str = Field(default_factory=lambda: str(uuid4()))
    name: str
    arguments: str = Field(description="JSON text.")


class ToolCall(SnakeModel):
    id: str
    index: int | None = None
    type: Literal["function"] = "function"
    function: ToolCallItem


class ChatCompletionMessage(SnakeModel):
    role: ChatRole
    content: str | ContentPart | list[ContentPart] | None = None
    reasoning_content: str | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None


class StreamOptions(SnakeModel):
    include_usage: bool = False


class ChatCompletionRequest(SnakeModel):
    model: str
    frequency_penalty: float | None = None
    messages: list[ChatCompletionMessage]
    logit_bias: dict[str, int] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = Field(
        default=None, description="Newer name of max_tokens; wins when both are given."
    )
    n: int | None = None
    presence_penalty: float | None = None
    response_format: dict[str, Any] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    tools: list[dict[str, Any]] | None = None
    reasoning_effort: ReasoningEffort | None = None
    enable_thinking: bool | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    repetition_context_size: int | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = None


class BenchChatCompletionRequest(ChatCompletionRequest):
    """A chat request whose answer is never streamed."""


class TopLogprobItem(SnakeModel):
    token: str
    logprob: float
    bytes: list[int] | None = None


class LogprobsContentItem(SnakeModel):
    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[TopLogprobItem]


class Logprobs(SnakeModel):
    content: list[LogprobsContentItem] | None = None


class PromptTokensDetails(SnakeModel):
    cached_tokens: int = 0
    audio_tokens: int = 0


class CompletionTokensDetails(SnakeModel):
    reasoning_tokens: int = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class Usage(SnakeModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class ChatCompletionChoice(SnakeModel):
    index: int
    message: ChatCompletionMessage
    logprobs: Logprobs | None = None
    finish_reason: FinishReason | None = None


class StreamingChoiceResponse(SnakeModel):
    index: int
    delta: ChatCompletionMessage
    logprobs: Logprobs | None = None
    finish_reason: FinishReason | None = None
    usage: Usage | None = None


class ChatCompletionResponse(SnakeModel):
    """A whole answer."""

    id: str = Field(description="The command id, which `/v1/cancel` takes.")
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatCompletionChoice | StreamingChoiceResponse]
    usage: Usage | None = None
    service_tier: str | None = None


class ChatCompletionChunk(ChatCompletionResponse):
    """One frame of a stream; the reference says `chat.completion` there, too."""

    object: ChunkObject = "chat.completion.chunk"  # type: ignore[assignment]
    choices: list[StreamingChoiceResponse]  # type: ignore[assignment]


class GenerationStats(SnakeModel):
    """`tps` is tokens per second."""

    prompt_tps: float
    generation_tps: float
    prompt_tokens: int
    generation_tokens: int
    peak_memory_usage: Memory
    serving_batches: bool | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="The runner can serve several requests in one step; absent: it did not say.",
    )
    in_flight_at_admission: int | None = Field(
        default=None,
        ge=1,
        exclude_if=lambda value: value is None,
        description="Requests in flight in the runner when this one was admitted, itself included.",
    )


class NodePowerStats(SnakeModel):
    node_id: NodeId
    samples: int
    avg_sys_power: float = Field(description="Watts.")


class PowerUsage(SnakeModel):
    elapsed_seconds: float
    nodes: list[NodePowerStats]
    total_avg_sys_power_watts: float
    total_energy_joules: float


class BenchChatCompletionResponse(ChatCompletionResponse):
    generation_stats: GenerationStats | None = None
    power_usage: PowerUsage | None = None


class PrefillProgressChunk(TaggedModel):
    """Content of the `prefill_progress` comment of a stream, in snake_case there."""

    model: str
    processed_tokens: int
    total_tokens: int


class CancelCommandResponse(SnakeModel):
    message: str
    command_id: CommandId
