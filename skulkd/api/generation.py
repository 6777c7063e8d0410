"""Answering a generation request, complete or streamed, for every API family.

The one place where runner output meets HTTP; a family only translates its body to a chat request
and output items to its own frames. A client that disconnects ends its task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from aiohttp import web

from skulkd.api.callers import CALLER
from skulkd.api.client_gone import ends_with_client
from skulkd.api.error_mapping import as_api_error
from skulkd.api.errors import ApiError, ShuttingDown
from skulkd.api.services import Services, services
from skulkd.api.sse import HEADERS, KEEP_ALIVE, EventStream, open_event_stream
from skulkd.requests.answer import GeneratedAnswer
from skulkd.requests.chat_params import chat_params, max_tokens
from skulkd.requests.embedding_params import RequestParams, check_generates
from skulkd.requests.errors import RequestError, has_failed, raise_if_failed
from skulkd.requests.generation_params import (
    SAME_NAMES,
    FieldNames,
    GenerationParams,
    check_budget,
)
from skulkd.requests.open_request import OpenRequest
from skulkd.requests.selection import card_of
from skulkd.runner.protocol import Output, PrefillProgress
from skulkd.store.cards.model_list import resolve_capabilities
from skulkd.wire.chat import ChatCompletionRequest
from skulkd.wire.ids import TokenId
from skulkd.worker.task_stream import TaskEnded, TaskStream

GENERATION_ERRORS = (400, 404, 413, 429, 500, 503)
Item = Output | PrefillProgress | TaskEnded


class Frames(Protocol):
    """Texts of one streamed answer, as its API family writes them."""

    def opening(self, first: Item | None) -> str:
        """Written at once; `first` is the first item when it was not waited for in vain."""

    def output(self, output: Output) -> str: ...

    def progress(self, progress: PrefillProgress) -> str: ...

    def end(self, ended: TaskEnded) -> str:
        """Not called for an answer that failed; a cancelled one ends without `Complete`."""

    def error(self, error: ApiError) -> str:
        """The last text of an answer that failed after it began."""


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """How to stream an answer."""

    frames: Callable[[OpenRequest], Frames]
    headers: Mapping[str, str] = field(default_factory=lambda: HEADERS)
    keep_alive: str | None = KEEP_ALIVE
    """What to write when nothing else was written for a while; None: nothing."""


async def prepare_chat(
    node: Services,
    body: ChatCompletionRequest,
    *,
    bench: bool = False,
    keep_alive_s: float | None = None,
    names: FieldNames = SAME_NAMES,
) -> GenerationParams:
    """The checks before a request is dispatched; its model is placed, if that is allowed.

    `names` are those of the API family's fields. Raises RequestError.
    """
    instances = await node.requests.dispatcher.ensure_placed(body.model, keep_alive_s)
    card = card_of(instances[0])
    check_generates(card)
    params = chat_params(body, resolve_capabilities(card), bench=bench, names=names)
    params = replace(params, keep_alive_s=keep_alive_s)
    limits = [instance.context_token_limit for instance in instances]
    check_budget(max_tokens(body), limits, params.options.name_of("max_tokens"))
    return params


async def answer_whole(
    request: web.Request, params: GenerationParams
) -> tuple[OpenRequest, GeneratedAnswer]:
    """The answer; incomplete when cancelled. Raises RequestError when it failed."""
    answer = GeneratedAnswer(params.options.n)
    return await collect_output(request, params, answer.add), answer


async def collect_output(
    request: web.Request, params: RequestParams, add: Callable[[Output], None]
) -> OpenRequest:
    """Call `add` with all output of a request. Raises RequestError when it failed."""
    requests = services(request).requests
    async with requests.open(_token_id()) as opened:
        with ends_with_client(request):
            stream = await requests.stream(opened, params)
            if stream is not None:
                async for item in stream:
                    if isinstance(item, Output):
                        add(item)
                    elif isinstance(item, TaskEnded):
                        raise_if_failed(item)
        return opened


async def answer_streamed(
    request: web.Request, params: GenerationParams, stream_format: StreamFormat
) -> web.StreamResponse:
    """An answer piece by piece. Raises RequestError while it can still be a status."""
    node = services(request)
    async with node.requests.open(_token_id()) as opened:
        with ends_with_client(request):
            stream = await node.requests.dispatcher.submit(opened, params)
            first = None
            if stream is None:
                node.requests.dispatcher.check_waiting_limit()
            else:
                first = await _first_item(stream, node.timeouts.early_s)
            if isinstance(first, TaskEnded):
                raise_if_failed(first)
            async with open_event_stream(
                request,
                headers=stream_format.headers,
                keep_alive=stream_format.keep_alive,
                keep_alive_s=node.timeouts.keep_alive_s,
                write_deadline_s=node.timeouts.write_s,
            ) as out:
                frames = stream_format.frames(opened)
                try:
                    if opening := frames.opening(first):
                        await out.write(opening)
                    if stream is None:
                        submit = node.requests.dispatcher.submit_when_ready
                        stream = await submit(opened, params)
                    if stream is not None:
                        await _send(out, frames, stream, first)
                except RequestError as error:
                    known = as_api_error(error) or ApiError(500, str(error))
                    await out.write(frames.error(known))
                except asyncio.CancelledError:
                    _continue_if_shutting_down(node, request)
                    await out.write(frames.error(ShuttingDown()))
                await out.finish()
        return out.response


async def _send(out: EventStream, frames: Frames, stream: TaskStream, first: Item | None) -> None:
    """Raises RequestError for what fails after the response has begun."""
    item = first or await anext(stream, None)
    while item is not None:
        # Everything that has arrived meanwhile is written at once.
        texts = [_text(frames, item)]
        while stream.ready and (item := await anext(stream, None)) is not None:
            texts.append(_text(frames, item))
        if text := "".join(texts):
            await out.write(text)
        if isinstance(item, TaskEnded):
            raise_if_failed(item)
        item = await anext(stream, None)


def _text(frames: Frames, item: Item) -> str:
    if isinstance(item, Output):
        return frames.output(item)
    if isinstance(item, PrefillProgress):
        return frames.progress(item)
    return "" if has_failed(item) else frames.end(item)


async def _first_item(stream: TaskStream, seconds: float) -> Item | None:
    """The first item if it comes soon: a request that is refused gets a status, not a stream."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(stream, None)
    except TimeoutError:
        return None


def _continue_if_shutting_down(node: Services, request: web.Request) -> None:
    """Raises CancelledError again unless the daemon stops and the client can still be told."""
    task = asyncio.current_task()
    if not node.lifecycle.failing_requests or request.transport is None or task is None:
        raise asyncio.CancelledError
    task.uncancel()


def _token_id() -> TokenId | None:
    """The access token that this request was made with."""
    token = CALLER.get().token
    return None if token is None else token.token_id
