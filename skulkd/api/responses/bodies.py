"""The body of a response and its items. Pure."""

from __future__ import annotations

from skulkd.requests.answer import GeneratedAnswer
from skulkd.wire.chat import FinishReason, ToolCallItem, Usage
from skulkd.wire.responses import (
    FunctionCallOutput,
    IncompleteDetails,
    InputTokensDetails,
    ItemStatus,
    MessageOutput,
    OutputEntry,
    OutputTextPart,
    OutputTokensDetails,
    ReasoningOptions,
    ReasoningOutput,
    ResponseCreateParams,
    ResponseObject,
    ResponseStatus,
    ResponseUsage,
    SummaryText,
    TextOptions,
)

PREFIX = "resp_"


def new_response(body: ResponseCreateParams, command_id: str, created_at: int) -> ResponseObject:
    """A response that has just begun."""
    return ResponseObject(
        id=f"{PREFIX}{command_id}",
        created_at=created_at,
        status="in_progress",
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        model=body.model,
        output=[],
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        reasoning=body.reasoning or ReasoningOptions(),
        store=body.store is not False,
        temperature=body.temperature,
        text=body.text or TextOptions(),
        tool_choice=body.tool_choice or "auto",
        tools=body.tools or [],
        top_p=body.top_p,
    )


def finished(
    response: ResponseObject,
    output: list[OutputEntry],
    finish: FinishReason | None,
    usage: Usage | None,
) -> ResponseObject:
    """The end of a response; no finish reason means that it was cancelled."""
    status: ResponseStatus = "completed" if finish is not None else "cancelled"
    details = None
    if finish in ("length", "content_filter"):
        status = "incomplete"
        reason = "max_output_tokens" if finish == "length" else "content_filter"
        details = IncompleteDetails.model_validate({"reason": reason})
    return response.model_copy(
        update={
            "status": status,
            "incomplete_details": details,
            "output": output,
            "usage": None if usage is None else usage_of(usage),
        }
    )


def whole_output(answer: GeneratedAnswer, command_id: str) -> list[OutputEntry]:
    [choice] = answer.choices
    status: ItemStatus = "incomplete" if choice.finish_reason == "length" else "completed"
    output: list[OutputEntry] = []
    if reasoning := "".join(choice.reasoning):
        output.append(reasoning_item(command_id, reasoning, "completed"))
    if choice.text or not choice.tool_calls:
        output.append(message_item(command_id, choice.text, status))
    return [*output, *(call_item(call, "completed") for call in choice.tool_calls)]


def message_item(id_part: str, text: str | None, status: ItemStatus) -> MessageOutput:
    """None: the part has not begun."""
    parts = [] if text is None else [OutputTextPart(text=text)]
    return MessageOutput(id=f"item_{id_part}", status=status, content=parts)


def reasoning_item(id_part: str, text: str | None, status: ItemStatus) -> ReasoningOutput:
    parts = [] if text is None else [SummaryText(text=text)]
    return ReasoningOutput(id=f"rs_{id_part}", status=status, summary=parts)


def call_item(call: ToolCallItem, status: ItemStatus) -> FunctionCallOutput:
    """Arguments come with the end of the item."""
    return FunctionCallOutput(
        id=f"fc_{call.id}",
        status=status,
        call_id=call.id,
        name=call.name,
        arguments=call.arguments if status == "completed" else "",
    )


def usage_of(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=usage.prompt_tokens_details.cached_tokens
        ),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=usage.completion_tokens_details.reasoning_tokens
        ),
        total_tokens=usage.total_tokens,
    )
