"""From decoded text to what a client sees: stops, then reasoning, then tool calls. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

from skulkd.runner.reasoning import ReasoningSplitter, Split
from skulkd.runner.stopping import StopMatcher
from skulkd.runner.tools.extractor import ToolExtractor
from skulkd.wire.chat import ToolCallItem


class Delta(NamedTuple):
    content: str = ""
    reasoning: str = ""


@dataclass
class TextStream:
    """One choice's text. Parts that a request does not need are None and cost nothing."""

    stops: StopMatcher
    reasoning: ReasoningSplitter | None = None
    tools: ToolExtractor | None = None

    @property
    def ended(self) -> bool:
        """Whether the text says that decoding can end."""
        return self.stops.stopped or (self.tools is not None and self.tools.complete)

    @property
    def in_reasoning(self) -> bool:
        return self.reasoning is not None and self.reasoning.in_reasoning

    @property
    def calls(self) -> list[ToolCallItem]:
        return self.tools.calls if self.tools is not None else []

    def push(self, text: str) -> Delta:
        return self._split(self.stops.push(text))

    def finish(self) -> Delta:
        """Everything that was held back; call it once, when generation ended."""
        first = self._split(self.stops.finish())
        rest = self.reasoning.finish() if self.reasoning else Split()
        content = first.content
        if self.tools is None:
            content += rest.content
        else:
            content += self.tools.push(rest.content) + self.tools.finish()
        return Delta(content, first.reasoning + rest.reasoning)

    def _split(self, text: str) -> Delta:
        if not text:
            return Delta()
        split = self.reasoning.push(text) if self.reasoning else Split(content=text)
        content = self.tools.push(split.content) if self.tools else split.content
        return Delta(content, split.reasoning)
