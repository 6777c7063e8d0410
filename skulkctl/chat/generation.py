"""One request to a model: send it, follow the answer, cancel it when its reader is gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from skulkctl.chat.reply import Reply, failure_of
from skulkctl.daemon.chat import Ended
from skulkctl.errors import CliError, DeadlinePassed
from skulkctl.output.units import age_text

if TYPE_CHECKING:
    from skulkctl.daemon.chat import ChatItem
    from skulkctl.daemon.client import Daemon
    from skulkd.wire.chat import ChatCompletionRequest

_CANCEL_S = 2.0


class ReaderGone(Exception):
    """The reader of the response has gone."""


def generate(
    daemon: Daemon,
    request: ChatCompletionRequest,
    reply: Reply,
    on_item: Callable[[ChatItem], None] = lambda item: None,
    limit_s: float | None = None,
) -> None:
    """Fill `reply` as the answer arrives; `on_item` sees each item and may raise ReaderGone.

    Raises CliError when the answer is not complete, and DeadlinePassed when it took longer than
    `limit_s`. On ctrl-C, at the deadline and when the reader has left, the answer is cancelled in
    the cluster before the exception goes on.
    """
    try:
        _follow(daemon if limit_s is None else daemon.within(limit_s), request, reply, on_item)
    except (KeyboardInterrupt, ReaderGone):
        cancel(daemon, reply.command_id)
        raise
    except DeadlinePassed as error:
        cancel(daemon, reply.command_id)
        raise (error if limit_s is None else _too_late(request.model, limit_s)) from error
    failure = failure_of(reply)
    if failure is not None:
        raise failure


def _follow(
    daemon: Daemon,
    request: ChatCompletionRequest,
    reply: Reply,
    on_item: Callable[[ChatItem], None],
) -> None:
    began = time.monotonic()
    with daemon.chat(request) as items:
        for item in items:
            reply.add(item, time.monotonic() - began)
            on_item(item)
            if isinstance(item, Ended):
                return


def cancel(daemon: Daemon, command_id: str | None) -> None:
    """Have the cluster drop an answer, as well as can be."""
    if command_id is None:
        return  # the daemon has not said it yet; it cancels because the connection was closed
    with suppress(CliError):  # the closed connection cancels it, too, only later
        daemon.within(_CANCEL_S).cancel(command_id)


def _too_late(model_id: str, limit_s: float) -> DeadlinePassed:
    return DeadlinePassed(
        f"{model_id} timed out",
        f"the response was not complete within {age_text(limit_s)} and has been cancelled",
        hints=["wait longer:  --timeout 10m", "skulkctl instances"],
    )
