"""Declaring a route next to its handler: one table per family feeds router and OpenAPI.

Knows nothing of what the handlers do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from skulkd.api.callers import Need
from skulkd.api.errors import JSON_TYPE, ErrorFormat

Handler = Callable[..., Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method and path with everything that a reader of the API must know.

    `query` and `body` are validated before the handler runs, which gets them as
    keyword arguments of those names. `answer` is any type pydantic can describe.
    """

    method: str
    path: str
    handler: Handler
    tag: str
    summary: str
    answer: Any
    scope: Need
    """What a token must have to use it; the cluster secret and this machine need nothing."""
    query: type[BaseModel] | None = None
    body: Any = None
    raw_body: Any = None
    errors: tuple[int, ...] = ()
    other_answers: tuple[tuple[int, Any], ...] = ()
    content_type: str = JSON_TYPE
    files: tuple[str, ...] = ()
    """Media types of files that whoever asks with `Accept` gets instead."""
    counted: bool = True
    """Whether it is among a token's open requests: limited in number, ended with the token."""
    cancels: bool = False
    """A change, although less than `operate` is enough for it."""
    aliases: tuple[str, ...] = ()
    """Other paths of the same; the document names them in one place."""
    head: bool = False
    """Whether HEAD is answered, too."""
    any_content_type: bool = False
    """Whether a body is read as JSON whatever its media type says."""
    error_format: ErrorFormat | None = None
    """How errors are written; None: our envelope."""

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, *self.aliases)

    @property
    def open_to_all(self) -> bool:
        return self.scope == "anyone"

    @property
    def audited(self) -> bool:
        """Whether it changes something that an operator will want to trace back."""
        return self.cancels or (self.method != "GET" and self.scope == "operate")


@dataclass(slots=True)
class RouteTable:
    """The routes of one family, in the order they must be registered."""

    tag: str
    routes: list[Route] = field(default_factory=list)

    def __iter__(self) -> Iterator[Route]:
        return iter(self.routes)

    def get(self, path: str, **facts: Any) -> Callable[[Handler], Handler]:
        return self._declare("GET", path, facts)

    def post(self, path: str, **facts: Any) -> Callable[[Handler], Handler]:
        return self._declare("POST", path, facts)

    def put(self, path: str, **facts: Any) -> Callable[[Handler], Handler]:
        return self._declare("PUT", path, facts)

    def delete(self, path: str, **facts: Any) -> Callable[[Handler], Handler]:
        return self._declare("DELETE", path, facts)

    def _declare(
        self, method: str, path: str, facts: dict[str, Any]
    ) -> Callable[[Handler], Handler]:
        def keep(handler: Handler) -> Handler:
            self.routes.append(Route(method, path, handler, self.tag, **facts))
            return handler

        return keep
