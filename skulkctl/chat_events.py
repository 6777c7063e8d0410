"""What the frames of a chat stream say, and the reply they add up to. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from skulkctl.errors import CliError
from skulkctl.screen import printable
from skulkctl.stream import Comment, Frame
from skulkctl.units import age_text
from skulkctl.views.read import Document, dig, integer, mapping, number, sequence, text

OVER_LIMIT = "context_length_exceeded"
_DONE = "[DONE]"


@dataclass(frozen=True)
class Started:
    """The daemon has taken the request; this id cancels it."""

    command_id: str


@dataclass(frozen=True)
class Prefill:
    """The prompt is being read."""

    done_tokens: int
    total_tokens: int


@dataclass(frozen=True)
class Piece:
    """A piece of the answer, or of the thinking before it."""

    text: str = ""
    reasoning: str = ""


@dataclass(frozen=True)
class Finished:
    """The last piece has come."""

    reason: str
    usage: Document


@dataclass(frozen=True)
class Stats:
    """Speeds, as the runner measured them."""

    document: Document


@dataclass(frozen=True)
class Failed:
    """The answer ends here, with an error."""

    message: str
    code: int | None


@dataclass(frozen=True)
class Ended:
    """Nothing follows."""


ChatEvent = Started | Prefill | Piece | Finished | Stats | Failed | Ended


def read_frame(frame: Frame) -> Iterator[ChatEvent]:
    """The events in one frame; keep-alives and what is not understood give none."""
    if isinstance(frame, Comment):
        yield from _read_comment(frame.text)
    elif frame.text == _DONE:
        yield Ended()
    else:
        document = _parsed(frame.text)
        failed = read_failure(document)
        if failed is not None:
            yield failed
        else:
            yield from _read_chunk(document)


def read_failure(document: object) -> Failed | None:
    """The error that a frame or a whole answer carries; HTTP says 200 for both."""
    error = mapping(document, "error")
    if not error:
        return None
    return Failed(text(error, "message") or "no reason given", integer(error, "code"))


def _read_comment(said: str) -> Iterator[ChatEvent]:
    name, _, rest = said.partition(" ")
    if name == "command_id" and rest:
        yield Started(rest.strip())
    elif name == "prefill_progress":
        chunk = mapping(_parsed(rest), "PrefillProgressChunk")
        done, total = integer(chunk, "processed_tokens"), integer(chunk, "total_tokens")
        if done is not None and total:
            yield Prefill(done, total)
    elif name == "generation_stats":
        yield Stats(mapping(_parsed(rest)))


def _read_chunk(document: object) -> Iterator[ChatEvent]:
    for choice in sequence(document, "choices"):
        piece = Piece(
            _string(choice, "delta", "content"), _string(choice, "delta", "reasoning_content")
        )
        if piece != Piece():
            yield piece
        reason = text(choice, "finish_reason")
        if reason:
            yield Finished(reason, mapping(document, "usage"))


def _string(document: object, *keys: str) -> str:
    """Text as it is: `Unknown`, which elsewhere means nothing, may be the model's answer."""
    found = dig(document, *keys)
    return found if isinstance(found, str) else ""


def _parsed(said: str) -> object:
    try:
        document: object = json.loads(said)
    except ValueError:
        return None
    return document


@dataclass
class Reply:
    """An answer so far."""

    model_id: str
    command_id: str | None = None
    pieces: list[str] = field(default_factory=list)
    reasoning_pieces: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Document = field(default_factory=dict)
    stats: Document = field(default_factory=dict)
    first_piece_s: float | None = None
    seconds: float | None = None
    failure: Failed | None = None
    ended: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def reasoning(self) -> str:
        return "".join(self.reasoning_pieces)

    def add(self, event: ChatEvent, after_s: float) -> None:
        """Take one event, that came so long after the question."""
        self.seconds = after_s
        match event:
            case Started():
                self.command_id = event.command_id
            case Piece():
                if self.first_piece_s is None:
                    self.first_piece_s = after_s
                self.pieces.append(event.text)
                self.reasoning_pieces.append(event.reasoning)
            case Finished():
                self.finish_reason, self.usage = event.reason, event.usage or self.usage
            case Stats():
                self.stats = event.document
            case Failed():
                self.failure = event
            case Ended():
                self.ended = True
            case Prefill():
                pass

    def take_whole(self, document: object, after_s: float) -> None:
        """Take a whole answer that was not streamed."""
        self.seconds = after_s
        self.ended = True
        self.failure = read_failure(document)
        self.command_id = text(document, "id")
        self.usage = mapping(document, "usage")
        for choice in sequence(document, "choices"):
            self.pieces.append(_string(choice, "message", "content"))
            self.reasoning_pieces.append(_string(choice, "message", "reasoning_content"))
            self.finish_reason = text(choice, "finish_reason")

    @property
    def prompt_tokens(self) -> int | None:
        counted = integer(self.usage, "prompt_tokens")
        return integer(self.stats, "prompt_tokens") if counted is None else counted

    @property
    def tokens(self) -> int | None:
        counted = integer(self.usage, "completion_tokens")
        return integer(self.stats, "generation_tokens") if counted is None else counted

    def document(self) -> dict[str, object]:
        """What `-o json` prints."""
        return {
            "model": self.model_id,
            "commandId": self.command_id,
            "text": self.text,
            "reasoning": self.reasoning or None,
            "finishReason": self.finish_reason,
            "promptTokens": self.prompt_tokens,
            "tokens": self.tokens,
            "firstTokenSeconds": _rounded(self.first_piece_s),
            "seconds": _rounded(self.seconds),
            "promptTokensPerSecond": number(self.stats, "prompt_tps"),
            "tokensPerSecond": number(self.stats, "generation_tps"),
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def stats_text(reply: Reply) -> str:
    """`38 prompt tokens at 211.0/s, 12 tokens at 35.1/s, first after 212ms, stop`."""
    parts = []
    for count, what, speed in (
        (reply.prompt_tokens, "prompt tokens", number(reply.stats, "prompt_tps")),
        (reply.tokens, "tokens", number(reply.stats, "generation_tps")),
    ):
        if count is not None:
            parts.append(f"{count} {what}" + (f" at {speed:.1f}/s" if speed else ""))
    if reply.first_piece_s is not None:
        parts.append(f"first after {_time_text(reply.first_piece_s)}")
    if reply.seconds is not None:
        parts.append(f"all after {_time_text(reply.seconds)}")
    if reply.finish_reason:
        parts.append(reply.finish_reason)
    return ", ".join(parts) or "nothing is known yet"


def _time_text(seconds: float) -> str:
    return f"{1000 * seconds:.0f}ms" if seconds < 1 else age_text(seconds)


def failure_of(reply: Reply) -> CliError | None:
    """Why a reply is not whole, and whether asking again helps; None when it is."""
    what = f"{reply.model_id} did not finish its answer"
    details = [("command id", reply.command_id or "none given")]
    failed = reply.failure
    if failed is not None:
        why = [printable(line) for line in failed.message.splitlines() if line.strip()]
        if OVER_LIMIT in failed.message or failed.code == 400:
            hints = ["asking again does not help: shorten the prompt, or lower --max-tokens"]
        else:
            hints = ["asking again may help", "skulkctl instances", "skulkctl diagnose"]
        return CliError(what, *why, hints=hints, details=details)
    if not reply.ended or reply.finish_reason is None:
        return CliError(
            what,
            "stream closed before it was complete: it was cancelled, or the daemon stopped",
            hints=["asking again may help", "skulkctl status"],
            details=details,
        )
    return None
