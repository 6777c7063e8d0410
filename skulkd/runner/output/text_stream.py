"""From decoded text to what a client sees: stop strings, then reasoning, then tool calls. Pure."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from skulkd.runner.output.stopping import StopMatcher, held_back
from skulkd.runner.output.tool_calls import ToolExtractor
from skulkd.wire.chat import ToolCallItem

THINK_START = "<think>"
THINK_END = "</think>"


class Split(NamedTuple):
    reasoning: str = ""
    content: str = ""


class _State(Enum):
    OPENING = auto()
    REASONING = auto()
    CONTENT = auto()


@dataclass
class ReasoningSplitter:
    """Reasoning stands at the beginning of an answer or nowhere.

    `opened` is for models whose prompt already ends with the start marker. White space around the
    markers belongs to neither part.
    """

    start: str = THINK_START
    end: str = THINK_END
    opened: bool = False

    def __post_init__(self) -> None:
        self._state = _State.REASONING if self.opened else _State.OPENING
        self._held = ""
        self._strip = self.opened

    @property
    def in_reasoning(self) -> bool:
        return self._state is _State.REASONING

    def push(self, text: str) -> Split:
        text = self._held + text
        self._held = ""
        if self._state is _State.OPENING:
            text = self._open(text)
        if self._state is _State.OPENING:
            return Split()
        if self._state is _State.REASONING:
            return self._reason(text)
        return Split(content=self._stripped(text))

    def finish(self) -> Split:
        """What was held back because it could have been a marker."""
        text, self._held = self._held, ""
        if self._state is _State.REASONING:
            return Split(reasoning=text.rstrip() if text.isspace() else text)
        return Split(content=text)

    def _open(self, text: str) -> str:
        """Decide how the answer begins; holds the text while that is open."""
        lead = text.lstrip()
        if lead.startswith(self.start):
            self._state = _State.REASONING
            self._strip = True
            return lead[len(self.start) :]
        if self.start.startswith(lead):
            self._held = text
            return ""
        self._state = _State.CONTENT
        return text

    def _reason(self, text: str) -> Split:
        before, marker, after = text.partition(self.end)
        if marker:
            reasoning = self._stripped(before).rstrip()
            self._state = _State.CONTENT
            self._strip = True
            return Split(reasoning, self._stripped(after))
        text = self._stripped(text)
        # White space before the end marker is not shown either, so it waits with it.
        solid = len(text) - held_back(text, (self.end,))
        keep = len(text[:solid].rstrip())
        self._held = text[keep:]
        return Split(reasoning=text[:keep])

    def _stripped(self, text: str) -> str:
        if self._strip:
            text = text.lstrip()
            self._strip = not text
        return text


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
