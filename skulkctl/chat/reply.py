"""What the items of an answer add up to: its text, its speed, and whether it is complete. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from skulkctl.daemon.chat import (
    CONTEXT_LENGTH_EXCEEDED,
    Ended,
    Failed,
    Finished,
    Piece,
    Started,
)
from skulkctl.errors import CliError
from skulkctl.output.terminal import printable
from skulkctl.output.units import age_text
from skulkd.wire.chat import GenerationStats, PrefillProgressChunk, Usage

if TYPE_CHECKING:
    from skulkctl.daemon.chat import ChatItem


class ReplyItem(TypedDict):
    """What `chat -o json` prints."""

    model: str
    commandId: str | None
    text: str
    reasoning: str | None
    finishReason: str | None
    promptTokens: int | None
    tokens: int | None
    firstTokenSeconds: float | None
    seconds: float | None
    promptTokensPerSecond: float | None
    tokensPerSecond: float | None


@dataclass
class Reply:
    """An answer so far."""

    model_id: str
    command_id: str | None = None
    pieces: list[Piece] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage | None = None
    stats: GenerationStats | None = None
    first_piece_s: float | None = None
    seconds: float | None = None
    failure: Failed | None = None
    ended: bool = False

    def add(self, item: ChatItem, after_s: float) -> None:
        """Add an item that arrived so long after the request."""
        self.seconds = after_s
        match item:
            case Started():
                self.command_id = item.command_id
            case Piece():
                if self.first_piece_s is None:
                    self.first_piece_s = after_s
                self.pieces.append(item)
            case Finished():
                self.finish_reason, self.usage = item.reason, item.usage or self.usage
            case GenerationStats():
                self.stats = item
            case Failed():
                self.failure = item
            case Ended():
                self.ended = True
            case PrefillProgressChunk():
                return  # only shown

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def reasoning(self) -> str:
        return "".join(piece.reasoning for piece in self.pieces)

    @property
    def prompt_tokens(self) -> int | None:
        if self.usage is not None:
            return self.usage.prompt_tokens
        return self.stats.prompt_tokens if self.stats is not None else None

    @property
    def tokens(self) -> int | None:
        if self.usage is not None:
            return self.usage.completion_tokens
        return self.stats.generation_tokens if self.stats is not None else None

    def item(self) -> ReplyItem:
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
            "promptTokensPerSecond": self.stats.prompt_tps if self.stats else None,
            "tokensPerSecond": self.stats.generation_tps if self.stats else None,
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def stats_text(reply: Reply) -> str:
    """`38 prompt tokens at 211.0/s, 12 tokens at 35.1/s, first after 212ms, stop`."""
    item, parts = reply.item(), []
    for count, what, speed in (
        (item["promptTokens"], "prompt tokens", item["promptTokensPerSecond"]),
        (item["tokens"], "tokens", item["tokensPerSecond"]),
    ):
        if count is not None:
            parts.append(f"{count} {what}" + (f" at {speed:.1f}/s" if speed else ""))
    if reply.first_piece_s is not None:
        parts.append(f"first after {seconds_text(reply.first_piece_s)}")
    if reply.seconds is not None:
        parts.append(f"all after {seconds_text(reply.seconds)}")
    if reply.finish_reason:
        parts.append(reply.finish_reason)
    return ", ".join(parts) or "no statistics yet"


def seconds_text(seconds: float) -> str:
    return f"{1000 * seconds:.0f}ms" if seconds < 1 else age_text(seconds)


def failure_of(reply: Reply) -> CliError | None:
    """Why a reply is not complete, and whether asking again helps; None when it is complete."""
    what = f"{reply.model_id} did not complete its response"
    details = [("command id", reply.command_id or "none given")]
    failed = reply.failure
    if failed is None:
        if reply.ended and reply.finish_reason is not None:
            return None
        return CliError(
            what,
            "stream closed before it was complete: it was cancelled, or the daemon stopped",
            hints=["retrying may help", "skulkctl status"],
            details=details,
        )
    why = [printable(line) for line in failed.message.splitlines() if line.strip()]
    if failed.code == CONTEXT_LENGTH_EXCEEDED or failed.status == 400:
        hints = ["do not retry unchanged: shorten the prompt, or lower --max-tokens"]
    else:
        hints = ["retrying may help", "skulkctl instances", "skulkctl diagnose"]
    error = CliError(what, *why, hints=hints, details=details)
    error.code = failed.code
    return error
