"""Anthropic's Messages API: request, answer and errors. Unknown keys are ignored."""

from typing import Annotated, Any, Literal

from pydantic import Field

from skulkd.wire.base import SnakeModel

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]


class MessageTextBlock(SnakeModel):
    type: Literal["text"] = "text"
    text: str


class MessageThinkingBlock(SnakeModel):
    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str = Field(default="", description="Always empty: nothing here is signed.")


class RedactedThinkingBlock(SnakeModel):
    type: Literal["redacted_thinking"]
    data: str = ""


class MessageToolUseBlock(SnakeModel):
    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


class MediaBlock(SnakeModel):
    """Accepted by the schema so that the refusal can say why."""

    type: Literal["image", "document"]


class MessageToolResultBlock(SnakeModel):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[Annotated[MessageTextBlock | MediaBlock, Field(discriminator="type")]] = ""
    is_error: bool | None = None


MessageBlock = Annotated[
    MessageTextBlock
    | MessageThinkingBlock
    | RedactedThinkingBlock
    | MessageToolUseBlock
    | MessageToolResultBlock
    | MediaBlock,
    Field(discriminator="type"),
]


class MessageParam(SnakeModel):
    role: Literal["user", "assistant", "system"]
    content: str | list[MessageBlock]


class MessageTool(SnakeModel):
    """A tool of the client; those that Anthropic's servers run are refused."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class MessageToolChoice(SnakeModel):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingOption(SnakeModel):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(default=None, description="Accepted, not enforced.")


class OutputFormat(SnakeModel):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(SnakeModel):
    format: OutputFormat | None = None
    effort: str | None = None


class CountTokensRequest(SnakeModel):
    model: str
    messages: list[MessageParam]
    system: str | list[MessageTextBlock] | None = None
    tools: list[MessageTool] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: ThinkingOption | None = None
    output_config: OutputConfig | None = None


class MessagesRequest(CountTokensRequest):
    max_tokens: int
    stop_sequences: list[str] | None = None
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


class MessageUsage(SnakeModel):
    input_tokens: int = Field(description="Without those read from the prefix cache.")
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int


AnswerBlock = MessageThinkingBlock | MessageTextBlock | MessageToolUseBlock


class MessagesResponse(SnakeModel):
    id: str = Field(description="`msg_` and the command id.")
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlock]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


class CountTokensResponse(SnakeModel):
    input_tokens: int


class AnthropicErrorBody(SnakeModel):
    type: str
    message: str


class AnthropicError(SnakeModel):
    """Body of every error under `/v1/messages`."""

    type: Literal["error"] = "error"
    error: AnthropicErrorBody
    request_id: str | None = None
