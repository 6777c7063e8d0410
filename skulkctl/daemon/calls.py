"""What a call to the daemon is: method, path, what goes in, and how the answer is read.

A call is described once; `Endpoint` makes a blocking method of it on `Daemon` and an awaitable one
on `AsyncDaemon`. A description that needs several requests is a generator that yields calls and
gets their answers, so it does no I/O either. It must not know any particular endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, overload
from urllib.parse import quote, urlencode

from skulkctl.daemon.answers import Answer, Request, Upload
from skulkctl.daemon.reading import read_answer

if TYPE_CHECKING:
    from pydantic import BaseModel

    from skulkctl.daemon.client import AsyncDaemon, Daemon

USUAL_S = 15.0
"""How long an answer may take, unless the call or `--timeout` says otherwise."""

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound="BaseModel")
Steps = Generator["Call[Any] | IsStock", Any, T]
"""Calls, one after the other; `answer = yield from ask(call)` is typed."""


class Call(NamedTuple, Generic[T]):
    """One request, and how its answer is read. `read` raises the CliError of a bad answer."""

    request: Request
    read: Callable[[Answer], T]
    usual_s: float = USUAL_S
    """How long the answer may take; with an Upload, how long each of its pieces may."""


def send(method: str, path: str, body: bytes | None = None) -> Call[Answer]:
    """Any request; its answer as it came, whatever the status."""
    return Call(Request(method, path, body), lambda answer: answer)


def call(
    method: str,
    path: str,
    answer: type[M],
    *,
    query: Iterable[tuple[str, str]] = (),
    body: BaseModel | Upload | None = None,
    usual_s: float = USUAL_S,
) -> Call[M]:
    """A call whose answer is one wire model. Only the fields that were given are sent."""
    return Call(
        request(method, path, query=query, body=body),
        lambda received: read_answer(received, answer),
        usual_s,
    )


def request(
    method: str,
    path: str,
    *,
    query: Iterable[tuple[str, str]] = (),
    body: BaseModel | Upload | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> Request:
    encoded = urlencode(list(query))
    raw: bytes | Upload | None
    if body is None or isinstance(body, Upload):
        raw = body
    else:
        raw = body.model_dump_json(exclude_unset=True).encode()
    return Request(method, f"{path}?{encoded}" if encoded else path, raw, tuple(headers))


def query_of(wanted: BaseModel) -> list[tuple[str, str]]:
    """The fields that were given, as a query of a URL."""
    fields = wanted.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return [
        (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in fields.items()
    ]


def segment(value: str) -> str:
    """An id as one segment of a path."""
    return quote(value, safe="")


class IsStock(NamedTuple):
    """Whether the node is a stock Skulk node; asked for once per connection."""


def is_stock() -> Steps[bool]:
    """For descriptions that ask a stock node otherwise; see `stock.py`."""
    answer: bool = yield IsStock()
    return answer


def ask(call: Call[T]) -> Steps[T]:
    """A single call as steps."""
    answer: T = yield call
    return answer


class Endpoint(Generic[P, T]):
    """A described call as a method: blocking on a `Daemon`, awaitable on an `AsyncDaemon`."""

    def __init__(self, describe: Callable[P, Call[T] | Steps[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    def steps(self, *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        described = self._describe(*args, **kwargs)
        return ask(described) if isinstance(described, Call) else described

    @overload
    def __get__(self, client: None, owner: object = None) -> Endpoint[P, T]: ...
    @overload
    def __get__(self, client: Daemon, owner: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncDaemon, owner: object = None) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: Any, owner: object = None) -> Any:
        if client is None:
            return self

        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.run(self.steps(*args, **kwargs))

        return method
