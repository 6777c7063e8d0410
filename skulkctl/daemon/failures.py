"""What becomes of a request that got no answer: no connection, silence, or a broken one. Pure."""

from __future__ import annotations

import socket

from skulkctl.daemon.answers import Request
from skulkctl.endpoints import start_command
from skulkctl.errors import CliError, DeadlinePassed, ServerFailed, Unreachable

NO_RESPONSE = "the connection was closed without a response"
MID_RESPONSE = "the connection was closed in the middle of the response"
NOT_HTTP = "something answers there, but it does not speak HTTP"


class NotSent(Exception):
    """No connection: the request cannot have had any effect."""


def unreachable(tried: list[tuple[str, str]]) -> Unreachable:
    """No endpoint could be reached: which were tried, why not, and what starts a daemon."""
    hints = [f"start one:  {start_command(tried[0][0])}"]
    if len(tried) == 1:
        hints.append("or use another:  skulkctl --endpoint HOST:PORT ...")
    return Unreachable(
        "no daemon reachable", *(f"{endpoint}: {why}" for endpoint, why in tried), hints=hints
    )


def no_answer(request: Request, endpoint: str, why: str, *, timed_out: bool = False) -> CliError:
    """The request was sent and no usable response came back."""
    details = [("request", str(request)), ("endpoint", endpoint)]
    if request.changes:
        return DeadlinePassed(
            f"no answer to {request}",
            f"{endpoint}: {why}; the change may still be carried out",
            hints=["check before you repeat it:  skulkctl status"],
            details=details,
        )
    hints = ["wait longer:  skulkctl ... --timeout 1m"] if timed_out else []
    return Unreachable(
        f"no answer to {request}", f"{endpoint}: {why}", hints=hints, details=details
    )


def stream_broken(request: Request, endpoint: str, why: str) -> ServerFailed:
    """A response that arrives piece by piece ended before it was complete."""
    details = [("request", str(request)), ("endpoint", endpoint)]
    return ServerFailed("connection closed mid-response", f"{endpoint}: {why}", details=details)


def stream_silent(request: Request, endpoint: str, waited: str) -> DeadlinePassed:
    """A response that arrives piece by piece stopped without being closed."""
    details = [("request", str(request)), ("endpoint", endpoint)]
    why = f"{endpoint}: nothing received for {waited}"
    return DeadlinePassed("timed out waiting for a response", why, details=details)


def os_words(error: OSError) -> str:
    """What the operating system, or TLS, says about a connection."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "no such host"
    tls = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    if tls:
        return f"TLS failed: {str(tls).replace('_', ' ').lower()}"
    return (error.strerror or str(error) or type(error).__name__).lower()
