"""Which endpoint of a context is asked, at which address, and with which token. No I/O.

`Dialer.exchange` is a generator: it yields the lookups and attempts that a connection carries out.
A request is repeated elsewhere only while nothing has been sent, so no change is made twice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from skulkctl.contexts import Target
from skulkctl.daemon.answers import Answer, Request, Upload
from skulkctl.daemon.failures import NotSent, unreachable

_MOST_ADDRESSES = 4


class Lookup(NamedTuple):
    """Find the IP addresses of a host."""

    host: str
    port: int


class Attempt(NamedTuple):
    """Send a request to one address."""

    request: Request
    endpoint: str
    url: str
    headers: dict[str, str]
    host: str
    """The name that a certificate must be for."""


Exchange = Generator[Lookup | Attempt, Any, Answer]


class Dialer:
    """Stays with the endpoint that answered last, and tries the others when it does not."""

    def __init__(self, target: Target, detail: Callable[[str], None]) -> None:
        self.target = target
        self._detail = detail
        self._answered: str | None = None
        self._addresses: dict[str, Sequence[str]] = {}
        self._kept: dict[tuple[str, str], Answer] = {}
        """Answers that the server says may be asked for again by their ETag."""

    @property
    def endpoint(self) -> str:
        """The endpoint that answered last, or the first one."""
        return self._answered or self.target.context.endpoints[0]

    def exchange(self, request: Request, *, keep: bool = True) -> Exchange:
        """The answer; `keep` allows to ask for it again by its ETag.

        Raises Unreachable when no endpoint can be reached.
        """
        tried: list[tuple[str, str]] = []
        hints: list[str] = []
        for endpoint in dict.fromkeys((self.endpoint, *self.target.context.endpoints)):
            try:
                answer: Answer = yield from self._at(endpoint, request, keep)
            except NotSent as error:
                tried.append((endpoint, str(error)))
                hints += error.hints
                self._detail(f"{endpoint}: {error}")
                self._addresses.pop(endpoint, None)
                continue
            self._answered = endpoint
            self._detail(
                f"{request} at {endpoint}: {answer.status}, request id "
                f"{answer.header('x-request-id') or 'none given'}"
            )
            return answer
        self._answered = None
        raise unreachable(tried, hints)

    def _at(self, endpoint: str, request: Request, keep: bool) -> Exchange:
        parts = urlsplit(endpoint)
        host, is_tls = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        if endpoint not in self._addresses:
            self._addresses[endpoint] = yield Lookup(host, port)
        failed = NotSent("no such host")
        for address in self._addresses[endpoint][:_MOST_ADDRESSES]:
            shown = f"[{address}]" if ":" in address else address
            url = f"{parts.scheme}://{shown}:{port}{parts.path}{request.path}"
            headers = self._headers(parts.netloc, address, request)
            is_kept = keep and request.method == "GET"
            kept = self._kept.get((endpoint, request.path)) if is_kept else None
            if kept is not None:
                headers["If-None-Match"] = kept.headers["etag"]
            try:
                answer: Answer = yield Attempt(request, endpoint, url, headers, host)
            except NotSent as error:
                failed = error
            else:
                return self._keep(answer, kept) if is_kept else answer
        raise failed

    def _keep(self, answer: Answer, kept: Answer | None) -> Answer:
        """The answer, or the one that is still valid, with the new one's time."""
        if answer.status == HTTPStatus.NOT_MODIFIED and kept is not None:
            return kept._replace(headers={**kept.headers, **answer.headers})
        if answer.ok and answer.header("etag"):
            self._kept[answer.endpoint, answer.request.path] = answer
        return answer

    def _headers(self, netloc: str, address: str, request: Request) -> dict[str, str]:
        headers = {"Host": netloc, "Accept": "*/*", "User-Agent": "skulkctl"}
        if isinstance(request.body, Upload):
            headers["Content-Type"] = "application/octet-stream"
            headers["Content-Length"] = str(request.body.length)
        elif request.body is not None:
            headers["Content-Type"] = "application/json"
        # The address is connected to as it is, so the token goes to this machine and no other.
        token = self.target.token_for(address)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers | dict(request.headers)
