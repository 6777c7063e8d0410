"""One question to a model: send it, follow the answer, cancel it when nobody wants it any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from skulkctl.chat_events import ChatEvent, Ended, Reply, failure_of, read_frame
from skulkctl.client import Client, OpenAnswer, path_segment
from skulkctl.daemon.answers import Answer, error_of, message_lines, read_json
from skulkctl.errors import CliError, DeadlinePassed, NotFound, Refused, RouteMissing, ServerFailed
from skulkctl.stream import frames
from skulkctl.units import age_text
from skulkctl.views.read import Document

PATH = "/v1/chat/completions"
SILENCE_S = 60.0
"""A daemon that is well says something every 10 s, even while a model is loading."""
WHOLE_S = 600.0
"""An answer that is not streamed comes without a word before it is complete."""
_CANCEL_S = 2.0


class ReaderGone(Exception):
    """Whoever read the answer has left."""


@dataclass(frozen=True)
class Question:
    """What to ask, and how long the whole answer may take."""

    model_id: str
    body: Document
    limit_s: float | None = None


def ask(
    client: Client,
    question: Question,
    reply: Reply,
    watch: Callable[[ChatEvent], None] = lambda event: None,
) -> None:
    """Fill `reply` as the answer comes; `watch` sees each event and may raise ReaderGone.

    Raises CliError when the answer is not whole. On ctrl-C, at the deadline and when the
    reader has left, the answer is cancelled in the cluster before the exception goes on.
    """
    began = time.monotonic()
    try:
        _exchange(client, question, reply, watch, began)
    except DeadlinePassed as error:
        if question.limit_s is None:
            raise
        raise _too_late(question, question.limit_s) from error
    failure = failure_of(reply)
    if failure is not None:
        raise failure


def _exchange(
    client: Client,
    question: Question,
    reply: Reply,
    watch: Callable[[ChatEvent], None],
    began: float,
) -> None:
    streamed = bool(question.body.get("stream"))
    silence_s = SILENCE_S if streamed else question.limit_s or WHOLE_S
    answer = client.open("POST", PATH, question.body, min(silence_s, question.limit_s or silence_s))
    try:
        if answer.head.status != HTTPStatus.OK:
            raise chat_error(answer.whole(), question.model_id)
        if "event-stream" in (answer.head.header("content-type") or ""):
            _follow(answer, question, reply, watch, began)
        else:
            _take_whole(answer, reply, began)
    except (KeyboardInterrupt, ReaderGone, DeadlinePassed):
        answer.close()
        cancel(client, reply.command_id)
        raise
    finally:
        answer.close()


def _follow(
    answer: OpenAnswer,
    question: Question,
    reply: Reply,
    watch: Callable[[ChatEvent], None],
    began: float,
) -> None:
    for frame in frames(answer.pieces()):
        after_s = time.monotonic() - began
        for event in read_frame(frame):
            reply.add(event, after_s)
            watch(event)
            if isinstance(event, Ended):
                return
        if question.limit_s is not None:
            left_s = question.limit_s - after_s
            if left_s <= 0:
                raise _too_late(question, question.limit_s)
            answer.limit_silence(min(left_s, SILENCE_S))


def _take_whole(answer: OpenAnswer, reply: Reply, began: float) -> None:
    whole = answer.whole()
    after_s = time.monotonic() - began
    if whole.body:
        reply.take_whole(read_json(whole), after_s)


def cancel(client: Client, command_id: str | None) -> bool:
    """Ask the daemon to drop an answer; False when that could not be done, which is no error."""
    if command_id is None:
        return False  # hanging up has the same effect
    try:
        quick = Client(client.target, _CANCEL_S)
        return quick.send("POST", f"/v1/cancel/{path_segment(command_id)}").ok
    except CliError:
        return False


def chat_error(answer: Answer, model_id: str) -> CliError:
    """A refusal before the first word, with what to do about it."""
    error = error_of(answer)
    what = f"{model_id} did not answer"
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
        hints = [f"ask again in {after}s" if after else "ask again later", "skulkctl instances"]
        return kind(what, *why, hints=hints, details=details)
    if isinstance(error, Refused | ServerFailed):
        return type(error)(what, *why, hints=error.hints, details=details)
    return error


def _too_late(question: Question, limit_s: float) -> DeadlinePassed:
    return DeadlinePassed(
        f"{question.model_id} took too long",
        f"no end of the answer within {age_text(limit_s)}; it has been cancelled",
        hints=["wait longer:  --timeout 10m", "skulkctl instances"],
    )
