"""Asking a model: the request, and what its answer says while it arrives.

An answer that is not streamed gives the same items, all at its end. What they add up to is in
`skulkctl/chat/reply.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from skulkctl.daemon.answers import Answer, error_of, message_lines
from skulkctl.daemon.calls import request
from skulkctl.daemon.reading import Unreadable, read_model
from skulkctl.daemon.sse import Comment, Frame, FrameParser
from skulkctl.daemon.streams import Decoder, StreamCall, Whole
from skulkctl.errors import CliError, NotFound, Refused, RouteMissing, ServerFailed

if TYPE_CHECKING:
    from pydantic import BaseModel

    from skulkd.wire.chat import (
        ChatCompletionMessage,
        ChatCompletionRequest,
        GenerationStats,
        PrefillProgressChunk,
        Usage,
    )

    M = TypeVar("M", bound=BaseModel)

PATH = "/v1/chat/completions"
SILENCE_S = 60.0
"""A daemon that is well sends something every 10 s, even while a model is loading."""
WHOLE_S = 600.0
"""An answer that is not streamed comes without a sign before it is complete."""
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
"""The contract puts this code before the message, because the message is all that a runner has."""
_DONE = "[DONE]"


class Started(NamedTuple):
    """The daemon has accepted the request; this id cancels it."""

    command_id: str


class Piece(NamedTuple):
    """A piece of the answer, or of the reasoning before it."""

    text: str = ""
    reasoning: str = ""


class Finished(NamedTuple):
    """The last piece has come."""

    reason: str
    usage: Usage | None


class Failed(NamedTuple):
    """The answer ends here, with an error. HTTP says 200 nevertheless."""

    message: str
    status: int
    code: str | None = None


class Ended(NamedTuple):
    """Nothing follows."""


if TYPE_CHECKING:
    ChatItem = Started | PrefillProgressChunk | Piece | Finished | GenerationStats | Failed | Ended

Note = Callable[[str], None]


def chat(wanted: ChatCompletionRequest) -> StreamCall[ChatItem]:
    """Ask a model. Hanging up cancels the answer, and so does `cancel` with its command id."""
    return StreamCall(
        request("POST", PATH, body=wanted),
        _decoder,
        SILENCE_S if wanted.stream else math.inf,
        usual_s=None if wanted.stream else WHOLE_S,
        error=lambda answer: chat_error(answer, wanted.model),
    )


def _decoder(head: Answer) -> Decoder[ChatItem]:
    if "event-stream" in (head.header("content-type") or ""):
        return _Events(head.note)
    return Whole(lambda body: read_whole(body.decode("utf-8", "replace"), head.note))


class _Events:
    """Decodes server-sent events."""

    def __init__(self, note: Note) -> None:
        self._parser = FrameParser()
        self._note = note

    def feed(self, piece: bytes) -> Iterator[ChatItem]:
        for frame in self._parser.feed(piece):
            yield from read_frame(frame, self._note)

    def end(self) -> tuple[()]:
        return ()


def read_frame(frame: Frame, note: Note) -> Iterator[ChatItem]:
    """The items in one frame; keep-alives and what is not understood give none."""
    if isinstance(frame, Comment):
        yield from _read_comment(frame.text, note)
    elif frame.text == _DONE:
        yield Ended()
    else:
        yield from _read_chunk(frame.text, note)


def _read_comment(text: str, note: Note) -> Iterator[ChatItem]:
    from skulkd.wire.chat import GenerationStats, PrefillProgressChunk

    name, _, rest = text.partition(" ")
    if name == "command_id" and rest.strip():
        yield Started(rest.strip())
    elif name == "prefill_progress":
        progress = _read(PrefillProgressChunk, rest, note)
        if progress is not None and progress.total_tokens > 0:
            yield progress
    elif name == "generation_stats":
        stats = _read(GenerationStats, rest, note)
        if stats is not None:
            yield stats


def _read_chunk(text: str, note: Note) -> Iterator[ChatItem]:
    from skulkd.wire.chat import ChatCompletionChunk

    failed = _read_failure(text)
    if failed is not None:
        yield failed
        return
    chunk = _read(ChatCompletionChunk, text, note)
    for choice in chunk.choices if chunk is not None else ():
        yield from _pieces(choice.delta)
        if choice.finish_reason:
            yield Finished(choice.finish_reason, chunk.usage if chunk is not None else None)


def read_whole(text: str, note: Note) -> Iterator[ChatItem]:
    """The items of an answer that was not streamed."""
    from skulkd.wire.chat import ChatCompletionChoice, ChatCompletionResponse

    failed = _read_failure(text)
    answer = None if failed is not None else _read(ChatCompletionResponse, text, note)
    if failed is not None:
        yield failed
    if answer is None:
        return
    yield Started(answer.id)
    for choice in answer.choices:
        if isinstance(choice, ChatCompletionChoice):
            yield from _pieces(choice.message)
            if choice.finish_reason:
                yield Finished(choice.finish_reason, answer.usage)
    yield Ended()


def _pieces(message: ChatCompletionMessage) -> Iterator[ChatItem]:
    text = message.content if isinstance(message.content, str) else ""
    if text or message.reasoning_content:
        yield Piece(text, message.reasoning_content or "")


def _read_failure(text: str) -> Failed | None:
    from skulkd.wire.errors import ErrorEnvelope

    envelope = _read(ErrorEnvelope, text, lambda left_out: None)
    if envelope is None:
        return None
    prefix, colon, _ = envelope.error.message.partition(":")
    is_coded = colon and prefix == CONTEXT_LENGTH_EXCEEDED
    return Failed(envelope.error.message, envelope.error.code, prefix if is_coded else None)


def _read(model: type[M], text: str, note: Note) -> M | None:
    try:
        return read_model(model, json.loads(text), note)
    except (ValueError, Unreadable) as error:
        note(f"ignored a part of the stream that is not a {model.__name__}: {error}")
        return None


def chat_error(answer: Answer, model_id: str) -> CliError:
    """A refusal before the first word, with what to do about it."""
    error = error_of(answer)
    what = f"{model_id} did not respond"
    why, details = message_lines(answer), answer.details()
    if isinstance(error, RouteMissing):
        return error
    if isinstance(error, NotFound):
        hints = [f"skulkctl place {model_id} --wait"]
        return NotFound(f"{model_id} is not placed", *why, hints=hints, details=details)
    after = answer.header("retry-after")
    waits = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
    if answer.status in waits or after is not None:
        kind = Refused if answer.status == HTTPStatus.TOO_MANY_REQUESTS else ServerFailed
        hints = [f"retry in {after}s" if after else "retry later", "skulkctl instances"]
        return kind(what, *why, hints=hints, details=details)
    if isinstance(error, Refused | ServerFailed):
        return type(error)(what, *why, hints=error.hints, details=details)
    return error
