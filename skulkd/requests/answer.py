"""A complete answer, collected from the output of a runner. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from skulkd.runner.protocol import Output
from skulkd.wire.chat import (
    FinishReason,
    GenerationStats,
    LogprobsContentItem,
    ToolCallItem,
    Usage,
)


@dataclass(slots=True)
class AnswerChoice:
    """One of the requested choices."""

    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: list[ToolCallItem] = field(default_factory=list)
    logprobs: list[LogprobsContentItem] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_sequence: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)


class GeneratedAnswer:
    """Collects output with `add`. A cancelled answer has no finish reasons, usage or stats."""

    def __init__(self, choices: int) -> None:
        self.choices = [AnswerChoice() for _ in range(choices)]
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
            choice.stop_sequence = item.stop_sequence or choice.stop_sequence
        self.usage = output.usage or self.usage
        self.stats = output.stats or self.stats
