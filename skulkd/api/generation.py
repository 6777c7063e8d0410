"""Answering a generation request, whole or streamed, whatever API family it came through.

The one place where runner output meets HTTP. A client that leaves takes its task with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from skulkd.api.client_gone import ends_with_client
from skulkd.api.commands import Command
from skulkd.api.errors import ApiError, ShuttingDown
from skulkd.api.failures import error_frame, failure_of_task
from skulkd.api.services import Services, services
from skulkd.api.sse import DONE, KEEP_ALIVE, EventStream, comment, open_event_stream
from skulkd.api.wanted import Wanted
from skulkd.api.whole_answer import WholeAnswer
from skulkd.runner.protocol import Output, OutputItem, PrefillProgress
from skulkd.wire.chat import PrefillProgressChunk, Usage
from skulkd.worker.task_stream import TaskEnded, TaskStream

Item = Output | PrefillProgress | TaskEnded


class Chunks(Protocol):
    """Frames of one answer, as its API family writes them."""

    def frame(self, item: OutputItem, usage: Usage | None = None) -> str: ...

    def usage_frame(self, usage: Usage) -> str: ...


@dataclass(frozen=True, slots=True)
class Streamed:
    """How an answer is to be streamed; `chunks` is given the command id."""

    chunks: Callable[[str], Chunks]
    include_usage: bool = False


async def answer_whole(request: web.Request, wanted: Wanted) -> tuple[str, WholeAnswer]:
    """Command id and answer; cut short when cancelled. Raises ApiError when it failed."""
    node = services(request)
    inference = node.inference
    answer = WholeAnswer(wanted.options.n)
    async with inference.commands.open() as command:
        with ends_with_client(request):
            stream = await inference.dispatcher.submit(command, wanted)
            if stream is None:
                stream = await inference.dispatcher.submit_when_ready(command, wanted)
            if stream is not None:
                async for item in stream:
                    _count(node, item)
                    if isinstance(item, Output):
                        answer.add(item)
                    elif isinstance(item, TaskEnded):
                        _check(item)
        return command.command_id, answer


async def answer_streamed(
    request: web.Request, wanted: Wanted, streamed: Streamed
) -> web.StreamResponse:
    """An answer that is on its way. Raises ApiError while that can still be an HTTP status."""
    node = services(request)
    inference = node.inference
    async with inference.commands.open() as command:
        with ends_with_client(request):
            stream = await inference.dispatcher.submit(command, wanted)
            first = None
            if stream is None:
                inference.dispatcher.check_waiting_room()
            else:
                first = await _early(stream, inference.pace.early_s)
            if isinstance(first, TaskEnded):
                _check(first)
            async with open_event_stream(
                request,
                keep_alive_s=inference.pace.keep_alive_s,
                write_deadline_s=inference.pace.write_s,
            ) as out:
                await out.write(KEEP_ALIVE + comment("command_id", command.command_id))
                answer = _StreamedAnswer(node, command, wanted, streamed)
                try:
                    await answer.send(out, stream, first)
                except ApiError as error:
                    await out.write(error_frame(error) + DONE)
                except asyncio.CancelledError:
                    await _say_shutting_down(node, request, out)
                await out.finish()
        return out.response


class _StreamedAnswer:
    """One answer from its first item to its last frame."""

    def __init__(
        self, node: Services, command: Command, wanted: Wanted, streamed: Streamed
    ) -> None:
        self._node = node
        self._command = command
        self._wanted = wanted
        self._include_usage = streamed.include_usage
        self._chunks = streamed.chunks(command.command_id)

    async def send(self, out: EventStream, stream: TaskStream | None, first: Item | None) -> None:
        """Raises ApiError for what went wrong after the beginning."""
        if stream is None:
            dispatcher = self._node.inference.dispatcher
            stream = await dispatcher.submit_when_ready(self._command, self._wanted)
        if stream is None:
            return
        item = first or await anext(stream, None)
        while item is not None:
            # Whatever has arrived meanwhile goes out in one piece.
            frames = [self._frames(item)]
            while stream.ready and (item := await anext(stream, None)) is not None:
                frames.append(self._frames(item))
            if text := "".join(frames):
                await out.write(text)
            if isinstance(item, TaskEnded):
                _check(item)
            item = await anext(stream, None)

    def _frames(self, item: Item) -> str:
        _count(self._node, item)
        if isinstance(item, Output):
            return self._tokens(item)
        if isinstance(item, PrefillProgress):
            progress = PrefillProgressChunk(
                model=self._wanted.params.model,
                processed_tokens=item.processed,
                total_tokens=item.total,
            )
            return comment("prefill_progress", progress.model_dump_json(by_alias=False))
        return self._end(item)

    def _tokens(self, output: Output) -> str:
        usage = None if self._include_usage else output.usage
        last = len(output.items) - 1
        return "".join(
            self._chunks.frame(item, usage if at == last else None)
            for at, item in enumerate(output.items)
        )

    def _end(self, ended: TaskEnded) -> str:
        if ended.status != "Complete":
            return ""  # an error comes by itself, and a cancelled stream just ends
        usage = ""
        if self._include_usage and ended.usage is not None:
            usage = self._chunks.usage_frame(ended.usage)
        stats = ""
        if ended.stats is not None:
            stats = comment("generation_stats", ended.stats.model_dump_json(by_alias=False))
        return f"{usage}{stats}{DONE}"


async def _early(stream: TaskStream, seconds: float) -> Item | None:
    """The first item if it comes soon: a request that is refused gets a status, not a stream."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(stream, None)
    except TimeoutError:
        return None


async def _say_shutting_down(node: Services, request: web.Request, out: EventStream) -> None:
    """The last words to a client whose answer the stop of the daemon cuts off."""
    task = asyncio.current_task()
    if not node.lifecycle.failing_requests or request.transport is None or task is None:
        raise asyncio.CancelledError
    task.uncancel()
    await out.write(error_frame(ShuttingDown()) + DONE)


def _check(ended: TaskEnded) -> None:
    error = failure_of_task(ended)
    if error is not None:
        raise error


def _count(node: Services, item: Item) -> None:
    if isinstance(item, Output):
        node.inference.figures.tokens += sum(part.tokens for part in item.items)
