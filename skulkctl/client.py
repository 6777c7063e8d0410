"""The HTTP client of the commands that `skulkctl/daemon` does not serve yet; it gets no new users.

It tries a context's endpoints in order and gives every wait a limit. It must not know what any
endpoint means.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

from skulkctl.contexts import Target
from skulkctl.daemon.answers import Answer, Request, is_missing_route, read_json
from skulkctl.daemon.deadline import call_within
from skulkctl.daemon.failures import (
    MID_RESPONSE,
    NO_RESPONSE,
    NOT_HTTP,
    NotSent,
    no_answer,
    os_words,
    unreachable,
)
from skulkctl.errors import DeadlinePassed, ServerFailed
from skulkctl.units import age_text

DEFAULT_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 3.0
_PIECE_BYTES = 65536

Result = TypeVar("Result")


class Client:
    """Talks to the first endpoint of a target that answers, and stays with it."""

    def __init__(
        self,
        target: Target,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        detail: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.target = target
        self.timeout_s = timeout_s
        self._detail = detail
        self._answering: str | None = None
        self.sent_change = False
        """Whether a request went out that may have changed something."""

    @property
    def endpoint(self) -> str:
        """The endpoint that answered last, or the first one."""
        return self._answering or self.target.context.endpoints[0]

    def get(self, path: str, **query: str) -> object:
        """The JSON at a path; raises the matching CliError."""
        return read_json(self.send("GET", path, query=query))

    def get_optional(self, path: str) -> object | None:
        """Like `get`, but None when this server has no such endpoint."""
        answer = self.send("GET", path)
        return None if is_missing_route(answer) else read_json(answer)

    def get_first(self, *paths: str) -> object:
        """The JSON at the first path that this server has; our own endpoint comes before the
        reference's. Raises RouteMissing when it has none of them."""
        *own, last = paths
        for path in own:
            found = self.get_optional(path)
            if found is not None:
                return found
        return self.get(last)

    def change(self, method: str, path: str, document: object = None, **query: str) -> object:
        """Ask for a change and give the JSON of the answer."""
        body = None if document is None else json.dumps(document).encode()
        return read_json(self.send(method, path, body=body, query=query))

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request to the first endpoint that can be reached.

        Raises Unreachable when there is none. Another endpoint is tried only while nothing
        has been sent, so that no change is ever asked for twice.
        """
        request = Request(method, f"{path}?{urlencode(query)}" if query else path, body)
        answer = self._first_reachable(lambda endpoint: self._exchange(endpoint, request))
        self._tell(answer)
        return answer

    def open(self, method: str, path: str, document: object, silence_s: float) -> OpenAnswer:
        """Like `send`, for an answer that arrives piece by piece; the caller closes it.

        Raises DeadlinePassed when nothing at all arrives for `silence_s`.
        """
        body = None if document is None else json.dumps(document).encode()
        request = Request(method, path, body)
        answer = self._first_reachable(lambda endpoint: self._open(endpoint, request, silence_s))
        self._tell(answer.head)
        return answer

    def stream(
        self, method: str, path: str, pieces: Iterator[bytes], length: int, silence_s: float
    ) -> Answer:
        """Send a body of `length` bytes piece by piece; each may take `silence_s`.

        Raises Unreachable, or ServerFailed when the connection ends before there is an answer.
        """
        request = Request(method, path)
        answer = self._first_reachable(
            lambda endpoint: self._stream(endpoint, request, pieces, length, silence_s)
        )
        self._tell(answer)
        return answer

    def _first_reachable(self, attempt: Callable[[str], Result]) -> Result:
        endpoints = (self._answering,) if self._answering else self.target.context.endpoints
        tried: list[tuple[str, str]] = []
        hints: list[str] = []
        for endpoint in endpoints:
            try:
                result = attempt(endpoint)
            except NotSent as error:
                tried.append((endpoint, str(error)))
                hints += error.hints
                self._detail(f"{endpoint}: {error}")
                continue
            self._answering = endpoint
            return result
        raise unreachable(tried, hints)

    def _tell(self, answer: Answer) -> None:
        self._detail(
            f"{answer.request} at {answer.endpoint}: {answer.status}, request id "
            f"{answer.header('x-request-id') or 'none given'}"
        )

    def _open(self, endpoint: str, request: Request, silence_s: float) -> OpenAnswer:
        connection = self._connection(endpoint)
        try:
            self._connect(connection, endpoint)
            connection.sock.settimeout(silence_s)
            return OpenAnswer(connection, endpoint, request, self._headers(connection))
        except BaseException:
            connection.close()
            raise

    def _stream(
        self,
        endpoint: str,
        request: Request,
        pieces: Iterator[bytes],
        length: int,
        silence_s: float,
    ) -> Answer:
        connection = self._connection(endpoint)
        try:
            self._connect(connection, endpoint)
            connection.sock.settimeout(silence_s)
            headers = self._headers(connection)
            headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(length)}
            self.sent_change = True
            # A server that refuses hangs up before it has read everything; it has answered then.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(
                    request.method, urlsplit(endpoint).path + request.path, pieces, headers
                )
            response = connection.getresponse()
            return _answer(response, endpoint, request, response.read())
        except (OSError, http.client.HTTPException) as error:
            why = os_words(error) if isinstance(error, OSError) else _http_trouble(error)
            raise ServerFailed(
                "connection closed during the upload",
                f"{endpoint}: {why}",
                details=[("request", str(request)), ("endpoint", endpoint)],
            ) from error
        finally:
            connection.close()

    def _exchange(self, endpoint: str, request: Request) -> Answer:
        connection = self._connection(endpoint)
        try:
            self._connect(connection, endpoint)
            headers = self._headers(connection)
            self.sent_change |= request.changes
            try:
                return call_within(
                    self.timeout_s, lambda: _talk(connection, endpoint, request, headers)
                )
            except TimeoutError:
                why = f"no answer within {age_text(self.timeout_s)}"
                raise no_answer(request, endpoint, why, timed_out=True) from None
            except http.client.HTTPException as error:
                raise no_answer(request, endpoint, _http_trouble(error)) from error
            except OSError as error:
                raise no_answer(request, endpoint, os_words(error)) from error
        finally:
            connection.close()

    def _connection(self, endpoint: str) -> http.client.HTTPConnection:
        parts = urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port
        limit_s = min(CONNECT_TIMEOUT_S, self.timeout_s)
        if parts.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=limit_s)
        return http.client.HTTPSConnection(host, port, timeout=limit_s, context=self._tls)

    def _connect(self, connection: http.client.HTTPConnection, endpoint: str) -> None:
        """Raises NotSent. The name in the certificate is that of the endpoint."""
        _connect(connection, self.timeout_s)
        if not isinstance(connection, http.client.HTTPSConnection):
            return
        plain, host = connection.sock, urlsplit(endpoint).hostname
        try:
            connection.sock = call_within(
                self.timeout_s, lambda: self._tls.wrap_socket(plain, server_hostname=host)
            )
        except TimeoutError:
            raise NotSent(f"no TLS handshake within {age_text(self.timeout_s)}") from None
        except ssl.SSLError as error:
            from skulkctl.tls_trust import explain

            raise NotSent(*explain(error, endpoint, self.target)) from error
        except OSError as error:
            raise NotSent(os_words(error)) from error

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        from skulkctl.tls_trust import tls_context

        return tls_context(self.target)

    def _headers(self, connection: http.client.HTTPConnection) -> dict[str, str]:
        headers = {"Accept": "*/*", "User-Agent": "skulkctl"}
        token = self.target.token_for(connection.sock.getpeername()[0])
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers


class OpenAnswer:
    """An answer whose body is read while it arrives. Ctrl-C is noticed between two pieces."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        endpoint: str,
        request: Request,
        headers: dict[str, str],
    ) -> None:
        self._connection = connection
        # The connection forgets its socket as soon as the server has said that it will close.
        self._socket = connection.sock
        self._endpoint = endpoint
        self._request = request
        with self._trouble():
            _send(connection, endpoint, request, headers)
            self._response = connection.getresponse()
        self.head = _answer(self._response, endpoint, request, b"")

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes, until its end; raises CliError when it breaks off."""
        with self._trouble():
            while piece := self._response.read1(_PIECE_BYTES):
                yield piece

    def whole(self) -> Answer:
        """All of the body at once."""
        return replace(self.head, body=b"".join(self.pieces()))

    def limit_silence(self, silence_s: float) -> None:
        """From now on, wait no longer than this for the next piece."""
        self._socket.settimeout(silence_s)

    def close(self) -> None:
        """Hang up; the daemon then stops working on the answer."""
        self._response.close()
        self._connection.close()

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        details = [("request", str(self._request)), ("endpoint", self._endpoint)]
        try:
            yield
        except TimeoutError:
            why = f"{self._endpoint}: nothing for {age_text(self._socket.gettimeout() or 0)}"
            raise DeadlinePassed("timed out waiting for a response", why, details=details) from None
        except http.client.HTTPException as error:
            why = f"{self._endpoint}: {_http_trouble(error)}"
            raise ServerFailed("connection closed mid-response", why, details=details) from error
        except OSError as error:
            why = f"{self._endpoint}: {os_words(error)}"
            raise ServerFailed("connection closed mid-response", why, details=details) from error


def path_segment(value: str) -> str:
    """An id as one segment of a path."""
    return quote(value, safe="")


def _connect(connection: http.client.HTTPConnection, timeout_s: float) -> None:
    limit_s = min(CONNECT_TIMEOUT_S, timeout_s)
    given_up = threading.Event()

    def connect() -> None:
        # Without the TLS handshake, which may take as long as any answer of a busy daemon.
        http.client.HTTPConnection.connect(connection)
        if given_up.is_set():
            connection.close()

    try:
        call_within(limit_s, connect)
    except TimeoutError:
        given_up.set()
        raise NotSent(f"no connection within {age_text(limit_s)}") from None
    except OSError as error:
        raise NotSent(os_words(error)) from error
    connection.sock.settimeout(timeout_s)


def _talk(
    connection: http.client.HTTPConnection,
    endpoint: str,
    request: Request,
    headers: dict[str, str],
) -> Answer:
    _send(connection, endpoint, request, headers)
    response = connection.getresponse()
    return _answer(response, endpoint, request, response.read())


def _send(
    connection: http.client.HTTPConnection,
    endpoint: str,
    request: Request,
    headers: dict[str, str],
) -> None:
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    prefix = urlsplit(endpoint).path
    connection.request(request.method, prefix + request.path, request.body, headers)


def _answer(
    response: http.client.HTTPResponse, endpoint: str, request: Request, body: bytes
) -> Answer:
    received = {name.lower(): value for name, value in response.getheaders()}
    return Answer(request, endpoint, response.status, body, received)


def _http_trouble(error: http.client.HTTPException) -> str:
    if isinstance(error, http.client.RemoteDisconnected):
        return NO_RESPONSE
    if isinstance(error, http.client.IncompleteRead):
        return MID_RESPONSE
    return NOT_HTTP
