"""Bodies of chat answers: frames of a streamed one, and the complete one. Pure.

Everything that is the same in all frames of an answer is made once; a token costs one JSON text
and one concatenation.
"""

from __future__ import annotations

from collections.abc import Sequence

from skulkd.api.sse import data, one_line, to_json
from skulkd.requests.answer import AnswerChoice, GeneratedAnswer
from skulkd.runner.protocol import OutputItem
from skulkd.wire.chat import (
    ChatCompletionChoice,
    ChatCompletionMessage,
    ChatCompletionResponse,
    FinishReason,
    Logprobs,
    LogprobsContentItem,
    ToolCall,
    ToolCallItem,
    Usage,
)

_NULL = "null"


class ChatChunks:
    """Frames of one answer. `object` is OpenAI's: its stream helpers skip any other."""

    def __init__(self, command_id: str, model: str, created: int) -> None:
        self._open = (
            f'{{"id":{to_json(command_id)},"object":"chat.completion.chunk","created":{created},'
            f'"model":{to_json(model)},"choices":['
        )
        self._text_head = one_line(f"data: {self._open}{_choice_head(0)}")
        self._text_tail = (
            f"{_delta_tail(_NULL, _NULL)}{_choice_tail(_NULL, None)}{_answer_tail(None)}\n\n"
        )

    def frame(self, item: OutputItem, usage: Usage | None = None) -> str:
        """What one item adds; `usage` goes with the last one."""
        special = item.choice or item.reasoning or item.tool_calls or item.logprobs
        if not special and item.finish_reason is None and usage is None:
            return f"{self._text_head}{one_line(to_json(item.text))}{self._text_tail}"
        # An end without text says "", so that texts can simply be joined.
        nothing = item.reasoning or item.tool_calls
        content = to_json(item.text) if item.text or not nothing else _NULL
        reasoning = to_json(item.reasoning) if item.reasoning else _NULL
        logprobs = _NULL if item.logprobs is None else _logprobs(item.logprobs)
        return data(
            f"{self._open}{_choice_head(item.choice)}{content}"
            f"{_delta_tail(reasoning, _tool_calls(item.tool_calls))}"
            f"{_choice_tail(logprobs, item.finish_reason)}{_answer_tail(usage)}"
        )

    def usage_frame(self, usage: Usage) -> str:
        """The frame of its own that `include_usage` asks for."""
        return data(f"{self._open}{_answer_tail(usage)}")


def chat_response(
    answer: GeneratedAnswer, command_id: str, model: str, created: int, *, logprobs: bool
) -> ChatCompletionResponse:
    """The body of a complete answer."""
    return ChatCompletionResponse(
        id=command_id,
        created=created,
        model=model,
        choices=[
            _chat_choice(index, choice, logprobs=logprobs)
            for index, choice in enumerate(answer.choices)
        ],
        usage=answer.usage,
    )


def _chat_choice(index: int, choice: AnswerChoice, *, logprobs: bool) -> ChatCompletionChoice:
    return ChatCompletionChoice(
        index=index,
        message=ChatCompletionMessage(
            role="assistant",
            content=choice.text,
            reasoning_content="".join(choice.reasoning) or None,
            tool_calls=tool_calls_of(choice.tool_calls) or None,
        ),
        logprobs=Logprobs(content=choice.logprobs) if logprobs else None,
        finish_reason=choice.finish_reason,
    )


def tool_calls_of(calls: Sequence[ToolCallItem]) -> list[ToolCall]:
    """Calls as answers show them: numbered, with the id outside and inside."""
    return [ToolCall(id=call.id, index=at, function=call) for at, call in enumerate(calls)]


def _choice_head(index: int) -> str:
    return f'{{"index":{index},"delta":{{"role":"assistant","content":'


def _delta_tail(reasoning: str, tool_calls: str) -> str:
    return (
        f',"reasoning_content":{reasoning},"name":null,"tool_calls":{tool_calls},'
        f'"tool_call_id":null,"function_call":null}}'
    )


def _choice_tail(logprobs: str, finish_reason: FinishReason | None) -> str:
    finish = _NULL if finish_reason is None else f'"{finish_reason}"'
    return f',"logprobs":{logprobs},"finish_reason":{finish},"usage":null}}'


def _answer_tail(usage: Usage | None) -> str:
    counts = _NULL if usage is None else usage.model_dump_json()
    return f'],"usage":{counts},"service_tier":null}}'


def _logprobs(items: Sequence[LogprobsContentItem]) -> str:
    return f'{{"content":[{",".join(item.model_dump_json() for item in items)}]}}'


def _tool_calls(calls: Sequence[ToolCallItem] | None) -> str:
    if not calls:
        return _NULL
    return f"[{','.join(call.model_dump_json() for call in tool_calls_of(calls))}]"
