"""Answers whose body is read while it arrives, blocking or awaitable. Closing one hangs up.

Each has a connection of its own. It must not know what the pieces mean.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from skulkctl.daemon.answers import Answer
from skulkctl.daemon.deadline import Deadline
from skulkctl.daemon.failures import stream_broken, stream_late
from skulkctl.daemon.transport import (
    answer_of,
    import_httpx,
    not_sent,
    reason,
    request_arguments,
)
from skulkctl.output.units import age_text

if TYPE_CHECKING:
    import httpx

    from skulkctl.contexts import Target
    from skulkctl.daemon.dialing import Attempt


class Limits(NamedTuple):
    """How long the next piece may take, and the whole answer."""

    silence_s: float
    total_s: float | None = None

    @property
    def piece_s(self) -> float:
        return self.silence_s if self.total_s is None else min(self.silence_s, self.total_s)

    @property
    def is_total_first(self) -> bool:
        """Whether the limit of the whole answer is the one that a silent server meets."""
        return self.total_s is not None and self.total_s <= self.silence_s


class BaseOpenAnswer:
    """What both kinds share."""

    _attempt: Attempt
    head: Answer
    """Status and headers."""

    def __init__(self, target: Target, limits: Limits, detail: Callable[[str], None]) -> None:
        self._target = target
        self._limits = limits
        self._detail = detail

    def _translate(self, error: httpx.TransportError, *, has_head: bool) -> Exception:
        failed = not_sent(error, self._attempt, self._target, self._limits.piece_s)
        if failed is not None and not has_head:
            return failed
        if isinstance(error, import_httpx().TimeoutException):
            if self._limits.is_total_first:
                return self._too_late()
            return self._late(f"nothing received for {age_text(self._limits.piece_s)}")
        why = reason(error, has_head)
        return stream_broken(self._attempt.request, self._attempt.endpoint, why)

    def _too_late(self) -> Exception:
        return self._late(f"not complete within {age_text(self._limits.total_s or 0.0)}")

    def _late(self, why: str) -> Exception:
        return stream_late(self._attempt.request, self._attempt.endpoint, why)


class OpenAnswer(BaseOpenAnswer):
    """Blocking. Ctrl-C ends a read at once."""

    _response: httpx.Response | None = None

    def __init__(
        self,
        client: httpx.Client,
        target: Target,
        limits: Limits,
        detail: Callable[[str], None],
    ) -> None:
        super().__init__(target, limits, detail)
        self._client = client
        self._deadline = Deadline(limits.total_s)

    def send(self, attempt: Attempt) -> Answer:
        """The head of the answer. Raises NotSent, or the CliError of what was sent in vain."""
        self._attempt = attempt
        request = self._client.build_request(**request_arguments(attempt, self._limits.piece_s))
        request.extensions["trace"] = self._deadline.on_event
        try:
            self._response = self._client.send(request, stream=True)
        except import_httpx().TransportError as error:
            raise self._explain(error, has_head=False) from error
        self.head = answer_of(attempt, self._response, b"", self._detail)
        return self.head

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes, until its end. Raises DeadlinePassed and ServerFailed."""
        if self._response is None:
            return
        try:
            for piece in self._response.iter_bytes():
                if self._deadline.has_passed:
                    raise self._too_late()
                yield piece
        except import_httpx().TransportError as error:
            raise self._explain(error, has_head=True) from error

    def _explain(self, error: httpx.TransportError, *, has_head: bool) -> Exception:
        if self._deadline.has_passed:
            return self._too_late()
        return self._translate(error, has_head=has_head)

    def whole(self) -> Answer:
        """With all of the body."""
        return self.head._replace(body=b"".join(self.pieces()))

    def close(self) -> None:
        """Hang up; the daemon then stops working on the answer."""
        self._deadline.cancel()
        if self._response is not None:
            self._response.close()
        self._client.close()


class AsyncOpenAnswer(BaseOpenAnswer):
    """Awaitable; belongs to one event loop."""

    _response: httpx.Response | None = None

    def __init__(
        self,
        client: httpx.AsyncClient,
        target: Target,
        limits: Limits,
        detail: Callable[[str], None],
    ) -> None:
        import asyncio

        super().__init__(target, limits, detail)
        self._client = client
        now = asyncio.get_running_loop().time()
        self._end = None if limits.total_s is None else now + limits.total_s

    async def send(self, attempt: Attempt) -> Answer:
        """The head of the answer. Raises NotSent, or the CliError of what was sent in vain."""
        import asyncio

        self._attempt = attempt
        request = self._client.build_request(**request_arguments(attempt, self._limits.piece_s))
        try:
            async with asyncio.timeout_at(self._end):
                self._response = await self._client.send(request, stream=True)
        except import_httpx().TransportError as error:
            # Explaining a certificate looks at it once more, which blocks.
            raise await asyncio.to_thread(self._translate, error, has_head=False) from error
        except TimeoutError:
            raise self._too_late() from None
        self.head = answer_of(attempt, self._response, b"", self._detail)
        return self.head

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes, until its end. Raises DeadlinePassed and ServerFailed."""
        import asyncio

        if self._response is None:
            return
        arriving = self._response.aiter_bytes()
        try:
            while True:
                async with asyncio.timeout_at(self._end):
                    piece = await anext(arriving, None)
                if piece is None:
                    return
                yield piece
        except import_httpx().TransportError as error:
            raise self._translate(error, has_head=True) from error
        except TimeoutError:
            raise self._too_late() from None

    async def whole(self) -> Answer:
        """With all of the body."""
        return self.head._replace(body=b"".join([piece async for piece in self.pieces()]))

    async def close(self) -> None:
        """Hang up; the daemon then stops working on the answer."""
        if self._response is not None:
            await self._response.aclose()
        await self._client.aclose()
