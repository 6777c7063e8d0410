"""`POST /api/pull`: bring a model's files to this node, and tell how far that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from skulkd.api.audit import note
from skulkd.api.client_gone import ends_with_client
from skulkd.api.errors import ApiError
from skulkd.api.ollama.errors import error_line, error_response
from skulkd.api.ollama.generate import HEADERS, NDJSON
from skulkd.api.ollama.models import digest_of, named
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.sse import open_event_stream
from skulkd.api.streams import send
from skulkd.store.errors import HubTimeoutError, StoreError
from skulkd.store.staging.progress import whole_model_shard
from skulkd.wire.cards import ModelCard
from skulkd.wire.ollama import OllamaError, OllamaProgress, OllamaPullRequest

routes = RouteTable("ollama")
POLL_S = 0.25
_ERRORS = tuple((status, OllamaError) for status in (400, 401, 403, 404, 429, 503, 504))


@routes.post(
    "/api/pull",
    aliases=("/ollama/api/pull",),
    scope="operate",
    summary="Download a model to this node, for Ollama clients",
    body=OllamaPullRequest,
    answer=OllamaProgress,
    other_answers=_ERRORS,
    any_content_type=True,
    error_format=error_response,
    files=(NDJSON,),
)
async def post_ollama_pull(request: web.Request, body: OllamaPullRequest) -> web.StreamResponse:
    node = services(request)
    name = named(body.model, body.name)
    note(model=name)
    card = await _card(node, name)
    if not body.stream:
        with ends_with_client(request):
            async for line in _pull(node, card):
                last = line
        return await send(request, last.encode())
    async with open_event_stream(
        request,
        headers=HEADERS,
        keep_alive=None,
        keep_alive_s=node.timeouts.keep_alive_s,
        write_deadline_s=node.timeouts.write_s,
    ) as out:
        with ends_with_client(request):
            try:
                async for line in _pull(node, card):
                    await out.write(line)
            except ApiError as error:
                await out.write(error_line(error))
        await out.finish()
    return out.response


async def _card(node: Services, name: str) -> ModelCard:
    """Raises ApiError or HubTimeoutError."""
    known = (await node.models.catalogue()).get(name)
    try:
        return known or await node.store.lookup.find(name)
    except HubTimeoutError:
        raise
    except StoreError as error:
        raise ApiError(404, f"pull model manifest: {error.message}") from error


async def _pull(node: Services, card: ModelCard) -> AsyncIterator[str]:
    """Lines of progress, the last one is the success. Raises ApiError."""
    yield _line("pulling manifest")
    digest, shown = digest_of(card), -1
    status = f"pulling {digest[:12]}"
    job = asyncio.create_task(node.store.staging.ensure(whole_model_shard(card), from_hub=True))
    try:
        while not (await asyncio.wait({job}, timeout=POLL_S))[0]:
            progress = node.store.staging.progress(card)
            if progress is not None and progress.done_bytes != shown:
                shown = progress.done_bytes
                yield _line(status, digest, progress.total_bytes, shown)
        _raise_if_failed(job)
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
    size = card.storage_size.in_bytes
    yield _line(status, digest, size, size)
    yield _line("success")


def _raise_if_failed(job: asyncio.Task[Path]) -> None:
    try:
        job.result()
    except StoreError as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise ApiError(503, f"{error.message}{hint}") from error


def _line(
    status: str, digest: str | None = None, total: int | None = None, completed: int | None = None
) -> str:
    progress = OllamaProgress(
        status=status,
        digest=None if digest is None else f"sha256:{digest}",
        total=total,
        completed=completed,
    )
    return progress.model_dump_json() + "\n"
