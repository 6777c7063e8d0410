"""What becomes of a request that got no answer: no connection, silence, or a broken one. Pure."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from skulkctl.daemon.answers import Request
from skulkctl.endpoints import start_command
from skulkctl.errors import CliError, DeadlinePassed, ServerFailed, Unreachable

NO_RESPONSE = "the connection was closed without a response"
MID_RESPONSE = "the connection was closed in the middle of the response"
NOT_HTTP = "a server responds there, but it does not speak HTTP"


class NotSent(Exception):
    """No connection: the request cannot have had any effect. With hints where they help."""

    def __init__(self, why: str, hints: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.hints = tuple(hints)


def unreachable(tried: list[tuple[str, str]], hints: Sequence[str] = ()) -> Unreachable:
    """No endpoint could be reached: which were tried, why not, and what helps.

    Without `hints` of their own that is to start a daemon.
    """
    what = "cannot establish a secure connection" if hints else "no daemon reachable"
    if not hints:
        hints = [f"start one:  {start_command(tried[0][0])}"]
        if len(tried) == 1:
            hints.append("or use another:  skulkctl --endpoint HOST:PORT ...")
    return Unreachable(what, *(f"{endpoint}: {why}" for endpoint, why in tried), hints=hints)


def no_answer(request: Request, endpoint: str, why: str, *, timed_out: bool = False) -> CliError:
    """The request was sent and no usable response came back."""
    details = [("request", str(request)), ("endpoint", endpoint)]
    if request.changes:
        return DeadlinePassed(
            f"no answer to {request}",
            f"{endpoint}: {why}; the change may still be carried out",
            hints=["check the result before repeating it:  skulkctl status"],
            details=details,
        )
    hints = ["wait longer:  skulkctl ... --timeout 1m"] if timed_out else []
    return Unreachable(
        f"no answer to {request}", f"{endpoint}: {why}", hints=hints, details=details
    )


def upload_failed(request: Request, endpoint: str, why: str) -> ServerFailed:
    """A body that is sent piece by piece was not accepted, and there was no answer."""
    details = [("request", str(request)), ("endpoint", endpoint)]
    return ServerFailed(
        "connection closed during the upload", f"{endpoint}: {why}", details=details
    )


def stream_broken(request: Request, endpoint: str, why: str) -> ServerFailed:
    """A response that arrives piece by piece ended before it was complete."""
    details = [("request", str(request)), ("endpoint", endpoint)]
    return ServerFailed("connection closed mid-response", f"{endpoint}: {why}", details=details)


def stream_late(request: Request, endpoint: str, why: str) -> DeadlinePassed:
    """A response that arrives piece by piece stopped without being closed, or takes too long."""
    details = [("request", str(request)), ("endpoint", endpoint)]
    return DeadlinePassed("timed out waiting for a response", f"{endpoint}: {why}", details=details)


def os_words(error: OSError) -> str:
    """What the operating system says about a connection."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "no such host"
    return (error.strerror or str(error) or type(error).__name__).lower()
