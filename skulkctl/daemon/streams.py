"""What a stream of the daemon is: a request, and how the pieces of its answer become items.

A stream is described once, like a call; `StreamEndpoint` makes a method of it that gives an
iterator on `Daemon` and an asynchronous one on `AsyncDaemon`. It must not know any particular
endpoint, and how bytes arrive is in `open_answers.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    overload,
)

from skulkctl.daemon.answers import Answer, Request, error_of
from skulkctl.daemon.open_answers import AsyncOpenAnswer, Limits, OpenAnswer

if TYPE_CHECKING:
    from skulkctl.daemon.calls import Steps
    from skulkctl.daemon.client import AsyncDaemon, Daemon
    from skulkctl.errors import CliError

P = ParamSpec("P")
T = TypeVar("T")
Item_co = TypeVar("Item_co", covariant=True)


class Decoder(Protocol[Item_co]):
    """Bytes in any pieces in, whole items out."""

    def feed(self, piece: bytes) -> Iterable[Item_co]:
        """The items that this piece completes."""

    def end(self) -> Iterable[Item_co]:
        """The items that the end of the answer completes."""


class StreamCall(NamedTuple, Generic[T]):
    """One request whose answer is a stream."""

    request: Request
    decoder: Callable[[Answer], Decoder[T]]
    """Made when the answer has begun, from its status and headers."""
    silence_s: float
    """The longest wait for the next piece."""
    usual_s: float | None = None
    """How long the whole answer may take, unless `--timeout` says otherwise."""
    is_endless: bool = False
    """Whether it goes on until somebody hangs up; `--timeout` does not end it then."""
    error: Callable[[Answer], CliError] = error_of
    """What an answer outside 2xx stands for."""

    def limits(self, limit_s: float | None) -> Limits:
        total_s = self.usual_s if limit_s is None else limit_s
        return Limits(self.silence_s, None if self.is_endless else total_s)


class Stream(Generic[T]):
    """Items as they arrive. Leaving the `with` block hangs up."""

    def __init__(self, opened: OpenAnswer, decoder: Decoder[T]) -> None:
        self._opened = opened
        self._decoder = decoder

    def __iter__(self) -> Iterator[T]:
        """Raises CliError when the answer ends before it is complete."""
        for piece in self._opened.pieces():
            yield from self._decoder.feed(piece)
        yield from self._decoder.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()


class AsyncStream(Generic[T]):
    """Items as they arrive. Leaving the `async with` block hangs up."""

    def __init__(self, opened: AsyncOpenAnswer, decoder: Decoder[T]) -> None:
        self._opened = opened
        self._decoder = decoder

    async def __aiter__(self) -> AsyncIterator[T]:
        """Raises CliError when the answer ends before it is complete."""
        async for piece in self._opened.pieces():
            for item in self._decoder.feed(piece):
                yield item
        for item in self._decoder.end():
            yield item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.close()


class StreamEndpoint(Generic[P, T]):
    """A described stream as a method: blocking on a `Daemon`, awaitable on an `AsyncDaemon`."""

    def __init__(self, describe: Callable[P, StreamCall[T] | Steps[StreamCall[T]]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    def steps(self, *args: P.args, **kwargs: P.kwargs) -> Steps[StreamCall[T]]:
        described = self._describe(*args, **kwargs)
        if not isinstance(described, StreamCall):
            return (yield from described)
        return described

    @overload
    def __get__(self, client: None, owner: object = None) -> StreamEndpoint[P, T]: ...
    @overload
    def __get__(self, client: Daemon, owner: object = None) -> Callable[P, Stream[T]]: ...
    @overload
    def __get__(
        self, client: AsyncDaemon, owner: object = None
    ) -> Callable[P, Awaitable[AsyncStream[T]]]: ...
    def __get__(self, client: Any, owner: object = None) -> Any:
        if client is None:
            return self

        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.open(self.steps(*args, **kwargs))

        return method


class Lines(Generic[T]):
    """A decoder of answers with one item in each line; `read` gives none for a line without."""

    def __init__(self, read: Callable[[bytes], Iterable[T]]) -> None:
        self._read = read
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[T]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            yield from self._read(line) if line.strip() else ()

    def end(self) -> Iterator[T]:
        rest, self._rest = self._rest, b""
        yield from self._read(rest) if rest.strip() else ()


class Whole(Generic[T]):
    """A decoder of answers that can only be read when they are complete."""

    def __init__(self, read: Callable[[bytes], Iterable[T]]) -> None:
        self._read = read
        self._pieces: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[T]:
        self._pieces.append(piece)
        yield from ()

    def end(self) -> Iterator[T]:
        yield from self._read(b"".join(self._pieces))
