"""Carrying out requests with httpx: blocking for commands, awaitable for the screens.

One kept-alive connection for each endpoint, and one for each answer that is read piece by piece.
Every wait has a limit, also that for a name lookup or for a server that sends one byte a second.
It must not know what any endpoint means.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from skulkctl.contexts import Target
from skulkctl.daemon.answers import Answer, Request, Upload
from skulkctl.daemon.deadline import call_within
from skulkctl.daemon.dialing import Attempt, Dialer, Lookup
from skulkctl.daemon.driving import drive, drive_async
from skulkctl.daemon.failures import NotSent, no_answer
from skulkctl.daemon.open_answers import AsyncOpenAnswer, Limits, OpenAnswer
from skulkctl.daemon.transport import (
    CONNECT_S,
    answer_of,
    import_httpx,
    look_up,
    request_arguments,
    tls_for,
    translate,
)
from skulkctl.output.units import age_text

if TYPE_CHECKING:
    import ssl

    import httpx


class BaseConnection:
    """What both kinds of connection share."""

    def __init__(self, target: Target, detail: Callable[[str], None]) -> None:
        self.dialer = Dialer(target, detail)
        self.sent_change = False
        """Whether a request was sent that may have changed something."""
        self._target = target
        self._detail = detail

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return tls_for(self._target)

    def _settings(self) -> dict[str, Any]:
        # No proxy: daemons are in our own network, and the token is for them alone.
        return {"verify": self._tls, "trust_env": False}

    @contextmanager
    def _noting_change(self, attempt: Attempt) -> Iterator[None]:
        before, self.sent_change = self.sent_change, self.sent_change or attempt.request.changes
        try:
            yield
        except NotSent:
            self.sent_change = before
            raise

    def _no_answer(self, attempt: Attempt, limit_s: float) -> Exception:
        why = f"no answer within {age_text(limit_s)}"
        return no_answer(attempt.request, attempt.endpoint, why, timed_out=True)


class Connection(BaseConnection):
    """Blocking. Ctrl-C is noticed at once, whatever is being waited for."""

    _client: httpx.Client | None = None
    _is_closed = False

    def send(self, request: Request, limit_s: float) -> Answer:
        """The answer, whatever its status. Raises Unreachable and DeadlinePassed.

        `limit_s` is for the whole answer; with an Upload it is for each of its pieces.
        """
        return drive(self.dialer.exchange(request), lambda step: self._perform(step, limit_s))

    def open(self, request: Request, limits: Limits) -> OpenAnswer:
        """An answer that is read while it arrives; the caller closes it. Raises like `send`."""
        client = import_httpx().Client(**self._settings())
        opened = OpenAnswer(client, self._target, limits, self._detail)

        def perform(step: Lookup | Attempt) -> Any:
            if isinstance(step, Lookup):
                return look_up(step, min(CONNECT_S, limits.piece_s))
            with self._noting_change(step):
                return opened.send(step)

        try:
            drive(self.dialer.exchange(request, keep=False), perform)
        except BaseException:
            opened.close()
            raise
        return opened

    def _perform(self, step: Lookup | Attempt, limit_s: float) -> Any:
        connect_s = min(CONNECT_S, limit_s)
        if isinstance(step, Lookup):
            return look_up(step, connect_s)
        with self._noting_change(step):
            if isinstance(step.request.body, Upload):
                return self._exchange(step, limit_s)
            try:
                return call_within(limit_s + connect_s, lambda: self._exchange(step, limit_s))
            except TimeoutError:
                self._drop()  # the abandoned thread still reads from it
                raise self._no_answer(step, limit_s) from None

    def prepare(self) -> httpx.Client:
        """The client that keeps the connections."""
        if self._is_closed:
            raise NotSent("the connection was closed")
        if self._client is None:
            self._client = import_httpx().Client(**self._settings())
        client: httpx.Client = self._client
        return client

    def _exchange(self, attempt: Attempt, limit_s: float) -> Answer:
        client = self.prepare()
        request = client.build_request(**request_arguments(attempt, limit_s))
        response = None
        try:
            response = client.send(request, stream=True)
            response.read()
        except import_httpx().TransportError as error:
            has_head = response is not None
            raise translate(error, attempt, self._target, limit_s, has_head=has_head) from error
        finally:
            if response is not None:
                response.close()
        return answer_of(attempt, response, response.content, self._detail)

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
        """The answer, whatever its status. Raises Unreachable and DeadlinePassed.

        `limit_s` is for the whole answer; with an Upload it is for each of its pieces.
        """

        async def perform(step: Lookup | Attempt) -> Any:
            return await self._perform(step, limit_s)

        return await drive_async(self.dialer.exchange(request), perform)

    async def open(self, request: Request, limits: Limits) -> AsyncOpenAnswer:
        """An answer that is read while it arrives; the caller closes it. Raises like `send`."""
        client = import_httpx().AsyncClient(**self._settings())
        opened = AsyncOpenAnswer(client, self._target, limits, self._detail)

        async def perform(step: Lookup | Attempt) -> Any:
            if isinstance(step, Lookup):
                return await self._look_up(step, limits.piece_s)
            with self._noting_change(step):
                return await opened.send(step)

        try:
            await drive_async(self.dialer.exchange(request, keep=False), perform)
        except BaseException:
            await opened.close()
            raise
        return opened

    async def _look_up(self, step: Lookup, limit_s: float) -> list[str]:
        import asyncio

        return await asyncio.to_thread(look_up, step, min(CONNECT_S, limit_s))

    async def _perform(self, step: Lookup | Attempt, limit_s: float) -> Any:
        import asyncio

        if isinstance(step, Lookup):
            return await self._look_up(step, limit_s)
        is_upload = isinstance(step.request.body, Upload)
        with self._noting_change(step):
            try:
                total_s = None if is_upload else limit_s + min(CONNECT_S, limit_s)
                async with asyncio.timeout(total_s):
                    return await self._exchange(step, limit_s)
            except TimeoutError:
                raise self._no_answer(step, limit_s) from None

    async def _exchange(self, attempt: Attempt, limit_s: float) -> Answer:
        import asyncio

        if self._client is None:
            self._client = import_httpx().AsyncClient(**self._settings())
        arguments = request_arguments(attempt, limit_s)
        if isinstance(attempt.request.body, Upload):
            arguments["content"] = _awaitable(attempt.request.body.pieces)
        request = self._client.build_request(**arguments)
        response = None
        try:
            response = await self._client.send(request, stream=True)
            await response.aread()
        except import_httpx().TransportError as error:
            has_head = response is not None
            raise await asyncio.to_thread(
                translate, error, attempt, self._target, limit_s, has_head=has_head
            ) from error
        finally:
            if response is not None:
                await response.aclose()
        return answer_of(attempt, response, response.content, self._detail)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


async def _awaitable(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
