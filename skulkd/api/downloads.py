"""Files onto one node, by command: `/download/start` and `DELETE /download/{node}/{model}`.

Both answer when the node has accepted; progress and failure are in `/state.downloads`. Asking
again after a failure is how a download is retried.
"""

from __future__ import annotations

import asyncio
import logging
from uuid import uuid4

from aiohttp import web
from pydantic import TypeAdapter

from skulkd.api.audit import note
from skulkd.api.errors import ApiError, ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.peers import PeerError, PeerGone, PeerRefused, Peers
from skulkd.store.errors import StoreError
from skulkd.store.model_ids import unchecked_directory_name
from skulkd.store.service import StoreService
from skulkd.wire.ids import CommandId, ModelId, NodeId
from skulkd.wire.shards import ShardMetadata
from skulkd.wire.storage import (
    DeleteDownloadResponse,
    StartDownloadParams,
    StartDownloadResponse,
)

routes = RouteTable("downloads")
ASK_S = 9.0
REMOVE_S = 60.0

_SHARD: TypeAdapter[ShardMetadata] = TypeAdapter(ShardMetadata)

log = logging.getLogger(__name__)


def serve_downloads(peers: Peers, store: StoreService) -> None:
    """Answer other nodes for this one."""
    jobs: set[asyncio.Task[None]] = set()

    async def start(_asker: NodeId, body: bytes) -> bytes:
        shard = _SHARD.validate_json(body)
        job = asyncio.create_task(_bring(store, shard))
        jobs.add(job)
        job.add_done_callback(jobs.discard)
        return b"{}"

    async def drop(_asker: NodeId, body: bytes) -> bytes:
        try:
            await _drop(store, ModelId(body.decode()))
        except StoreError as error:
            raise PeerRefused(peers.node_id, error.kind, error.message) from error
        return b"{}"

    peers.serve("store.download", start)
    peers.serve("store.drop", drop)


async def _bring(store: StoreService, shard: ShardMetadata) -> None:
    try:
        await store.staging.ensure(shard, from_hub=True)
    except StoreError as error:
        # The state says it, too; nobody waits here.
        log.warning("download of %s failed: %s", shard.model_card.model_id, error.message)


async def _drop(store: StoreService, model_id: ModelId) -> None:
    """Stop bringing a model and delete what is here of it, unless somebody uses it."""
    await store.staging.cancel(model_id)
    result = await store.evictor.purge(model_id)
    for model in result.skipped:
        raise StoreError(f"{model_id} is in use: {'; '.join(model.reasons)}")
    store.inventory.forget(unchecked_directory_name(model_id))


@routes.post(
    "/download/start",
    scope="operate",
    summary="Bring a model's files to a node; after a failure, try again",
    body=StartDownloadParams,
    answer=StartDownloadResponse,
    errors=(404, 503),
)
async def post_start(request: web.Request, body: StartDownloadParams) -> web.Response:
    note(node=body.target_node_id, model=body.shard_metadata.model_card.model_id)
    shard = _SHARD.dump_json(body.shard_metadata)
    await _ask(services(request), body.target_node_id, "store.download", shard, ASK_S)
    return ok(StartDownloadResponse(command_id=_new_command()).model_dump_json().encode())


@routes.delete(
    "/download/{node_id}/{model_id:.+}",
    scope="operate",
    summary="Stop a download, and delete the node's copy unless it is in use",
    answer=DeleteDownloadResponse,
    errors=(404, 409, 503),
)
async def delete_download(request: web.Request) -> web.Response:
    node_id, model_id = NodeId(request.match_info["node_id"]), request.match_info["model_id"]
    await _ask(services(request), node_id, "store.drop", model_id.encode(), REMOVE_S)
    return ok(DeleteDownloadResponse(command_id=_new_command()).model_dump_json().encode())


async def _ask(node: Services, target: NodeId, method: str, body: bytes, deadline_s: float) -> None:
    try:
        await node.peers.ask(target, method, body, deadline_s=deadline_s)
    except PeerGone as error:
        raise ApiError(404, str(error)) from error
    except PeerRefused as error:
        raise ApiError(409, str(error)) from error
    except PeerError as error:
        raise ApiError(503, str(error)) from error


def _new_command() -> CommandId:
    return CommandId(str(uuid4()))
