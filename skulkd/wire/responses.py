"""OpenAI's Responses API: request, answer, items. Unknown keys are ignored."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from skulkd.wire.base import SnakeModel
from skulkd.wire.cards import ReasoningEffort

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
ResponseRole = Literal["user", "assistant", "system", "developer"]


class ResponseTextPart(SnakeModel):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str


class ResponseRefusalPart(SnakeModel):
    type: Literal["refusal"]
    refusal: str


class ResponseMediaPart(SnakeModel):
    """Accepted by the schema so that the refusal can say why."""

    type: Literal["input_image", "input_file", "input_audio"]


ResponsePart = Annotated[
    ResponseTextPart | ResponseRefusalPart | ResponseMediaPart, Field(discriminator="type")
]


class MessageInput(SnakeModel):
    type: Literal["message"] = "message"
    role: ResponseRole
    content: str | list[ResponsePart]


class FunctionCallInput(SnakeModel):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class FunctionOutputInput(SnakeModel):
    type: Literal["function_call_output"]
    call_id: str
    output: str | list[ResponsePart]


class ReasoningInput(SnakeModel):
    type: Literal["reasoning"]
    summary: list[ResponseTextPart] = Field(default_factory=list)
    content: list[ResponseTextPart] | None = None


def _item_type(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if isinstance(kind, str) else "message"


InputItem = Annotated[
    Annotated[MessageInput, Tag("message")]
    | Annotated[FunctionCallInput, Tag("function_call")]
    | Annotated[FunctionOutputInput, Tag("function_call_output")]
    | Annotated[ReasoningInput, Tag("reasoning")],
    Discriminator(_item_type),
]


class TextFormat(SnakeModel):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = Field(default=None, exclude_if=lambda value: value is None)
    schema_: dict[str, Any] | None = Field(
        default=None, alias="schema", exclude_if=lambda value: value is None
    )
    strict: bool | None = Field(default=None, exclude_if=lambda value: value is None)


class TextOptions(SnakeModel):
    format: TextFormat = Field(default_factory=TextFormat)


class ReasoningOptions(SnakeModel):
    effort: ReasoningEffort | None = None
    summary: str | None = None


class ResponseCreateParams(SnakeModel):
    model: str
    input: str | list[InputItem]
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool = False
    store: bool | None = Field(default=None, description="False: it cannot be continued or read.")
    background: bool | None = None
    previous_response_id: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    enable_thinking: bool | None = None
    metadata: dict[str, str] | None = None


class OutputTextPart(SnakeModel):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[dict[str, Any]] = Field(default_factory=list)
    logprobs: list[dict[str, Any]] = Field(default_factory=list)


class MessageOutput(SnakeModel):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: ItemStatus
    content: list[OutputTextPart]


class SummaryText(SnakeModel):
    type: Literal["summary_text"] = "summary_text"
    text: str


class ReasoningOutput(SnakeModel):
    id: str
    type: Literal["reasoning"] = "reasoning"
    status: ItemStatus
    summary: list[SummaryText]


class FunctionCallOutput(SnakeModel):
    id: str
    type: Literal["function_call"] = "function_call"
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


OutputEntry = MessageOutput | ReasoningOutput | FunctionCallOutput


class InputTokensDetails(SnakeModel):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(SnakeModel):
    reasoning_tokens: int = 0


class ResponseUsage(SnakeModel):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseFailure(SnakeModel):
    code: str
    message: str


class IncompleteDetails(SnakeModel):
    reason: Literal["max_output_tokens", "content_filter"]


class ResponseObject(SnakeModel):
    id: str = Field(description="`resp_` and the command id.")
    object: Literal["response"] = "response"
    created_at: int
    status: ResponseStatus
    background: bool = False
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    model: str
    output: list[OutputEntry]
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    reasoning: ReasoningOptions = Field(default_factory=ReasoningOptions)
    store: bool = True
    temperature: float | None = None
    text: TextOptions = Field(default_factory=TextOptions)
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = Field(default_factory=list)
    top_p: float | None = None
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None


class ResponseDeleted(SnakeModel):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True
