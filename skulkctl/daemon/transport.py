"""What every connection has to do with httpx: importing it, its arguments, its errors.

It must not know what any endpoint means, nor keep a connection.
"""

from __future__ import annotations

import socket
import ssl
import sys
from typing import TYPE_CHECKING, Any

from skulkctl.contexts import Target
from skulkctl.daemon.answers import Answer, Upload
from skulkctl.daemon.deadline import call_within
from skulkctl.daemon.dialing import Attempt, Lookup
from skulkctl.daemon.failures import (
    MID_RESPONSE,
    NO_RESPONSE,
    NOT_HTTP,
    NotSent,
    no_answer,
    os_words,
    upload_failed,
)
from skulkctl.output.units import age_text

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

CONNECT_S = 3.0


def import_httpx() -> Any:
    """httpx without its command line, whose imports (rich, pygments) take longer than a request."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    import httpx

    return httpx


def tls_for(target: Target) -> ssl.SSLContext:
    """For https endpoints, what certificates they may show."""
    if any(endpoint.startswith("https:") for endpoint in target.context.endpoints):
        from skulkctl.certificates.trust import tls_context

        return tls_context(target)
    # No connection uses it. It trusts no CA, because loading the system's takes time.
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def request_arguments(attempt: Attempt, limit_s: float) -> dict[str, Any]:
    """For `build_request` of httpx; every read and every write may take `limit_s`."""
    body = attempt.request.body
    return {
        "method": attempt.request.method,
        "url": attempt.url,
        "headers": attempt.headers,
        "content": body.pieces if isinstance(body, Upload) else body,
        "timeout": import_httpx().Timeout(limit_s, connect=min(CONNECT_S, limit_s)),
        "extensions": {"sni_hostname": attempt.host},
    }


def look_up(step: Lookup, limit_s: float) -> list[str]:
    """The addresses of a host, those of this machine's resolver first. Raises NotSent."""
    try:
        found = call_within(
            limit_s, lambda: socket.getaddrinfo(step.host, step.port, type=socket.SOCK_STREAM)
        )
    except TimeoutError:
        raise NotSent(f"no such host found within {age_text(limit_s)}") from None
    except (OSError, UnicodeError) as error:
        raise NotSent(os_words(error) if isinstance(error, OSError) else "no such host") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def answer_of(
    attempt: Attempt, response: httpx.Response, body: bytes, detail: Callable[[str], None]
) -> Answer:
    received = {name.lower(): value for name, value in response.headers.items()}
    return Answer(attempt.request, attempt.endpoint, response.status_code, body, received, detail)


def translate(
    error: httpx.TransportError,
    attempt: Attempt,
    target: Target,
    limit_s: float,
    *,
    has_head: bool,
) -> Exception:
    """What an error of httpx means: NotSent before a connection, a CliError after it.

    Explaining a certificate looks at it once more, which blocks.
    """
    failed = None if has_head else not_sent(error, attempt, target, limit_s)
    if failed is not None:
        return failed
    timed_out = isinstance(error, import_httpx().TimeoutException)
    why = f"no answer within {age_text(limit_s)}" if timed_out else reason(error, has_head)
    if isinstance(attempt.request.body, Upload):
        return upload_failed(attempt.request, attempt.endpoint, why)
    return no_answer(attempt.request, attempt.endpoint, why, timed_out=timed_out)


def not_sent(
    error: httpx.TransportError, attempt: Attempt, target: Target, limit_s: float
) -> NotSent | None:
    """For an error before anything was sent; None for a later one."""
    httpx, cause = import_httpx(), _root(error)
    if isinstance(cause, ssl.SSLError):
        from skulkctl.certificates.trust import explain

        return NotSent(*explain(cause, attempt.endpoint, target))
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return NotSent(f"no connection within {age_text(min(CONNECT_S, limit_s))}")
    if isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol):
        return NotSent(os_words(cause) if isinstance(cause, OSError) else str(error))
    return None


def reason(error: httpx.TransportError, has_head: bool) -> str:
    """Why a connection ended before the answer was complete."""
    cause = _root(error)
    if has_head:
        return MID_RESPONSE
    if isinstance(error, import_httpx().RemoteProtocolError):
        # h11 complains about what it has received; httpcore itself about nothing received.
        return NOT_HTTP if type(cause).__module__.startswith("h11") else NO_RESPONSE
    return os_words(cause) if isinstance(cause, OSError) else NO_RESPONSE


def _root(error: BaseException) -> BaseException:
    """The first error of the chain, which knows the reason."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    return error
