"""The HTTP client: tries a context's endpoints in order and gives every wait a limit.

It uses http.client because importing httpx alone costs more than a whole `skulkctl status`
may take. It must not know what any endpoint means.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode, urlsplit

from skulkctl.answers import Answer, Request, is_missing_route, read_json
from skulkctl.contexts import Target
from skulkctl.deadline import call_within
from skulkctl.endpoints import start_command
from skulkctl.errors import CliError, DeadlinePassed, Unreachable
from skulkctl.units import age_text

DEFAULT_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 3.0


class NotSent(Exception):
    """No connection: the request cannot have had any effect."""


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
        endpoints = (self._answering,) if self._answering else self.target.context.endpoints
        tried: list[tuple[str, str]] = []
        for endpoint in endpoints:
            try:
                answer = self._exchange(endpoint, request)
            except NotSent as error:
                tried.append((endpoint, str(error)))
                self._detail(f"{endpoint}: {error}")
                continue
            self._answering = endpoint
            self._detail(
                f"{request} at {endpoint}: {answer.status}, request id "
                f"{answer.header('x-request-id') or 'none given'}"
            )
            return answer
        raise unreachable(tried)

    def _exchange(self, endpoint: str, request: Request) -> Answer:
        connection = _connection(endpoint, min(CONNECT_TIMEOUT_S, self.timeout_s))
        try:
            _connect(connection, self.timeout_s)
            headers = self._headers(connection)
            self.sent_change |= request.changes
            try:
                return call_within(
                    self.timeout_s, lambda: _talk(connection, endpoint, request, headers)
                )
            except TimeoutError:
                raise no_answer(
                    request, endpoint, f"no answer within {age_text(self.timeout_s)}"
                ) from None
            except http.client.HTTPException as error:
                raise no_answer(request, endpoint, _http_trouble(error)) from error
            except OSError as error:
                raise no_answer(request, endpoint, _os_trouble(error)) from error
        finally:
            connection.close()

    def _headers(self, connection: http.client.HTTPConnection) -> dict[str, str]:
        headers = {"Accept": "*/*", "User-Agent": "skulkctl"}
        token = self.target.token_for(connection.sock.getpeername()[0])
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers


def path_segment(value: str) -> str:
    """An id as one segment of a path."""
    return quote(value, safe="")


def unreachable(tried: list[tuple[str, str]]) -> Unreachable:
    """No endpoint could be reached: which were tried, why not, and what starts a daemon."""
    hints = [f"start one:  {start_command(tried[0][0])}"]
    if len(tried) == 1:
        hints.append("or ask another:  skulkctl --endpoint HOST:PORT ...")
    return Unreachable(
        "no daemon reachable", *(f"{endpoint}: {why}" for endpoint, why in tried), hints=hints
    )


def no_answer(request: Request, endpoint: str, why: str) -> CliError:
    """The request went out and nothing usable came back."""
    details = [("request", str(request)), ("endpoint", endpoint)]
    if request.changes:
        return DeadlinePassed(
            f"no answer to {request}",
            f"{endpoint}: {why}; the change may still be carried out",
            hints=["look before you ask again:  skulkctl status"],
            details=details,
        )
    hints = ["wait longer:  skulkctl ... --timeout 1m"] if "within" in why else []
    return Unreachable(
        f"no answer to {request}", f"{endpoint}: {why}", hints=hints, details=details
    )


def _connection(endpoint: str, timeout_s: float) -> http.client.HTTPConnection:
    parts = urlsplit(endpoint)
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=timeout_s)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _connect(connection: http.client.HTTPConnection, timeout_s: float) -> None:
    limit_s = min(CONNECT_TIMEOUT_S, timeout_s)
    given_up = threading.Event()

    def connect() -> None:
        connection.connect()
        if given_up.is_set():
            connection.close()

    try:
        call_within(limit_s, connect)
    except TimeoutError:
        given_up.set()
        raise NotSent(f"no connection within {age_text(limit_s)}") from None
    except OSError as error:
        raise NotSent(_os_trouble(error)) from error
    connection.sock.settimeout(timeout_s)


def _talk(
    connection: http.client.HTTPConnection,
    endpoint: str,
    request: Request,
    headers: dict[str, str],
) -> Answer:
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    prefix = urlsplit(endpoint).path
    connection.request(request.method, prefix + request.path, request.body, headers)
    response = connection.getresponse()
    body = response.read()
    received = {name.lower(): value for name, value in response.getheaders()}
    return Answer(request, endpoint, response.status, body, received)


def _http_trouble(error: http.client.HTTPException) -> str:
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed without an answer"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection broke in the middle of the answer"
    return "something answers there, but it does not speak HTTP"


def _os_trouble(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "no such host"
    tls = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    if tls:
        return f"TLS failed: {str(tls).replace('_', ' ').lower()}"
    return (error.strerror or str(error) or type(error).__name__).lower()
