"""An answer that is sent when it is complete: the runner's items put together. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from skulkd.api.chat_chunks import tool_calls_of
from skulkd.runner.protocol import Output
from skulkd.wire.chat import (
    ChatCompletionChoice,
    ChatCompletionMessage,
    ChatCompletionResponse,
    FinishReason,
    GenerationStats,
    Logprobs,
    LogprobsContentItem,
    ToolCallItem,
    Usage,
)


@dataclass(slots=True)
class ChoiceSoFar:
    """One of the answers that were asked for."""

    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: list[ToolCallItem] = field(default_factory=list)
    logprobs: list[LogprobsContentItem] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)


class WholeAnswer:
    """Grows with `add`. A cancelled one stays without finish reasons, usage and stats."""

    def __init__(self, choices: int) -> None:
        self.choices = [ChoiceSoFar() for _ in range(choices)]
        self.usage: Usage | None = None
        self.stats: GenerationStats | None = None

    def add(self, output: Output) -> None:
        for item in output.items:
            choice = self.choices[item.choice]
            choice.texts.append(item.text)
            choice.reasoning.append(item.reasoning)
            choice.tool_calls += item.tool_calls or ()
            choice.logprobs += item.logprobs or ()
            choice.finish_reason = item.finish_reason or choice.finish_reason
        self.usage = output.usage or self.usage
        self.stats = output.stats or self.stats


def chat_response(
    answer: WholeAnswer, command_id: str, model: str, created: int, *, logprobs: bool
) -> ChatCompletionResponse:
    """The body of `POST /v1/chat/completions`."""
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


def _chat_choice(index: int, choice: ChoiceSoFar, *, logprobs: bool) -> ChatCompletionChoice:
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
