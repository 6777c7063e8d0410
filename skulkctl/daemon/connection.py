"""Carrying out requests with httpx: blocking for commands, awaitable for the screens.

One kept-alive connection for each endpoint; every wait has a limit, also that for a name lookup or
for a server that sends one byte a second. It must not know what any endpoint means.
"""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skulkctl.contexts import Target
from skulkctl.daemon.answers import Answer, Request
from skulkctl.daemon.deadline import call_within
from skulkctl.daemon.dialing import Attempt, Dialer, Lookup
from skulkctl.daemon.driving import drive, drive_async
from skulkctl.daemon.failures import (
    MID_RESPONSE,
    NO_RESPONSE,
    NOT_HTTP,
    NotSent,
    no_answer,
    os_words,
)
from skulkctl.units import age_text

if TYPE_CHECKING:
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
        from skulkctl.tls_trust import tls_context

        return tls_context(target)
    # Never used, and it trusts nobody; loading the system's certificates takes time.
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class BaseConnection:
    """What both kinds of connection share."""

    def __init__(self, target: Target, detail: Callable[[str], None]) -> None:
        self.dialer = Dialer(target, detail)
        self.sent_change = False
        """Whether a request was sent that may have changed something."""
        self._detail = detail

    def _settings(self) -> dict[str, Any]:
        # No proxy: daemons are in our own network, and the token is for them alone.
        return {"verify": tls_for(self.dialer.target), "trust_env": False}

    def _translate(
        self,
        error: httpx.TransportError,
        attempt: Attempt,
        limit_s: float,
        response: httpx.Response | None,
    ) -> Exception:
        cause = _root(error)
        if response is None and isinstance(cause, ssl.SSLError):
            from skulkctl.tls_trust import explain

            return NotSent(*explain(cause, attempt.endpoint, self.dialer.target))
        return translate(error, attempt, limit_s, has_head=response is not None)

    def _answer(self, attempt: Attempt, response: httpx.Response) -> Answer:
        received = {name.lower(): value for name, value in response.headers.items()}
        return Answer(
            attempt.request,
            attempt.endpoint,
            response.status_code,
            response.content,
            received,
            self._detail,
        )


class Connection(BaseConnection):
    """Blocking. Ctrl-C is noticed at once, whatever is being waited for."""

    _client: httpx.Client | None = None
    _is_closed = False

    def send(self, request: Request, limit_s: float) -> Answer:
        """The answer, whatever its status. Raises Unreachable and DeadlinePassed."""
        return drive(self.dialer.exchange(request), lambda step: self._perform(step, limit_s))

    def _perform(self, step: Lookup | Attempt, limit_s: float) -> Any:
        connect_s = min(CONNECT_S, limit_s)
        if isinstance(step, Lookup):
            return look_up(step, connect_s)
        before, self.sent_change = self.sent_change, self.sent_change or step.request.changes
        try:
            return call_within(limit_s + connect_s, lambda: self._exchange(step, limit_s))
        except NotSent:
            self.sent_change = before
            raise
        except TimeoutError:
            self._drop()  # the abandoned thread still reads from it
            why = f"no answer within {age_text(limit_s)}"
            raise no_answer(step.request, step.endpoint, why, timed_out=True) from None

    def prepare(self) -> httpx.Client:
        """The client that keeps the connections."""
        if self._is_closed:
            raise NotSent("the connection was closed")
        if self._client is None:
            self._client = import_httpx().Client(**self._settings())
        client: httpx.Client = self._client
        return client

    def _exchange(self, attempt: Attempt, limit_s: float) -> Answer:
        httpx, client = import_httpx(), self.prepare()
        request = client.build_request(**request_arguments(attempt, limit_s, httpx))
        response = None
        try:
            response = client.send(request, stream=True)
            response.read()
        except httpx.TransportError as error:
            raise self._translate(error, attempt, limit_s, response) from error
        finally:
            if response is not None:
                response.close()
        return self._answer(attempt, response)

    def close(self) -> None:
        """Also ends what an abandoned thread still tries."""
        self._is_closed = True
        self._drop()

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


class AsyncConnection(BaseConnection):
    """Awaitable; belongs to one event loop."""

    _client: httpx.AsyncClient | None = None

    async def send(self, request: Request, limit_s: float) -> Answer:
        """The answer, whatever its status. Raises Unreachable and DeadlinePassed."""

        async def perform(step: Lookup | Attempt) -> Any:
            return await self._perform(step, limit_s)

        return await drive_async(self.dialer.exchange(request), perform)

    async def _perform(self, step: Lookup | Attempt, limit_s: float) -> Any:
        import asyncio

        connect_s = min(CONNECT_S, limit_s)
        if isinstance(step, Lookup):
            return await asyncio.to_thread(look_up, step, connect_s)
        before, self.sent_change = self.sent_change, self.sent_change or step.request.changes
        try:
            async with asyncio.timeout(limit_s + connect_s):
                return await self._exchange(step, limit_s)
        except NotSent:
            self.sent_change = before
            raise
        except TimeoutError:
            why = f"no answer within {age_text(limit_s)}"
            raise no_answer(step.request, step.endpoint, why, timed_out=True) from None

    async def _exchange(self, attempt: Attempt, limit_s: float) -> Answer:
        import asyncio

        httpx = import_httpx()
        if self._client is None:
            self._client = httpx.AsyncClient(**self._settings())
        request = self._client.build_request(**request_arguments(attempt, limit_s, httpx))
        response = None
        try:
            response = await self._client.send(request, stream=True)
            await response.aread()
        except httpx.TransportError as error:
            # Explaining a certificate looks at it once more, which blocks.
            raise await asyncio.to_thread(
                self._translate, error, attempt, limit_s, response
            ) from error
        finally:
            if response is not None:
                await response.aclose()
        return self._answer(attempt, response)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def request_arguments(attempt: Attempt, limit_s: float, httpx: Any) -> dict[str, Any]:
    return {
        "method": attempt.request.method,
        "url": attempt.url,
        "headers": attempt.headers,
        "content": attempt.request.body,
        "timeout": httpx.Timeout(limit_s, connect=min(CONNECT_S, limit_s)),
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


def translate(
    error: httpx.TransportError, attempt: Attempt, limit_s: float, *, has_head: bool
) -> Exception:
    """What an error of httpx means: NotSent before a connection, a CliError after it."""
    httpx = import_httpx()
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return NotSent(f"no connection within {age_text(min(CONNECT_S, limit_s))}")
    cause = _root(error)
    if isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol):
        return NotSent(os_words(cause) if isinstance(cause, OSError) else str(error))
    if isinstance(error, httpx.TimeoutException):
        why = f"no answer within {age_text(limit_s)}"
        return no_answer(attempt.request, attempt.endpoint, why, timed_out=True)
    if has_head:
        why = MID_RESPONSE
    elif isinstance(error, httpx.RemoteProtocolError):
        # h11 complains about what it has received; httpcore itself about nothing received.
        why = NOT_HTTP if type(cause).__module__.startswith("h11") else NO_RESPONSE
    else:
        why = os_words(cause) if isinstance(cause, OSError) else NO_RESPONSE
    return no_answer(attempt.request, attempt.endpoint, why)


def _root(error: BaseException) -> BaseException:
    """The first error of the chain, which knows the reason."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    return error
