"""What models cost on disk: `/store/storage`, `/store/purge-staging`, and both in more detail."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from aiohttp import web
from pydantic import Field, ValidationError

from skulkd.api.audit import note
from skulkd.api.errors import ApiError, ok
from skulkd.api.node_calls import NodeCall
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.peers import Asked, PeerError
from skulkd.store.errors import StoreError
from skulkd.store.model_ids import unchecked_directory_name
from skulkd.wire.base import SnakeModel, narrow
from skulkd.wire.ids import CommandId, ModelId, NodeId
from skulkd.wire.storage import (
    ClusterStorage,
    NodePurge,
    NodeStorage,
    NodeStorageAnswer,
    NodeStorageSummary,
    PurgeRequest,
    PurgeResult,
    PurgeStagingRequest,
    PurgeStagingResponse,
)

routes = RouteTable("storage")


@routes.get(
    "/store/storage",
    scope="read",
    summary="Staged models and disk of this node",
    answer=NodeStorageSummary,
)
async def get_storage(request: web.Request) -> web.Response:
    try:
        summary = await services(request).store.evictor.storage()
    except StoreError as error:
        raise ApiError(500, error.message) from error
    return ok(narrow(summary, NodeStorageSummary).model_dump_json().encode())


class StorageQuery(SnakeModel):
    local: bool = Field(default=False, description="Only the node that answers.")


@routes.get(
    "/store/storage/cluster",
    scope="read",
    summary="The same of every node, and what eviction would do",
    query=StorageQuery,
    answer=ClusterStorage,
)
async def get_cluster_storage(request: web.Request, query: StorageQuery) -> web.Response:
    node = services(request)
    answers = [await _own(node)] if query.local else await _everywhere(node)
    return ok(ClusterStorage(nodes=answers).model_dump_json().encode())


@routes.post(
    "/store/purge-staging",
    scope="operate",
    summary="Delete staged copies that are not in use, on all nodes",
    body=PurgeStagingRequest,
    answer=PurgeStagingResponse,
    errors=(404,),
)
async def post_purge_staging(request: web.Request, body: PurgeStagingRequest) -> web.Response:
    result = await _run_purge(services(request), PurgeRequest(model_id=body.model_id))
    return ok(narrow(result, PurgeStagingResponse).model_dump_json().encode())


@routes.post(
    "/v1/cluster/purge-staging",
    scope="operate",
    summary="The same with a dry run, on all nodes or some, and with the result of each node",
    body=PurgeRequest,
    answer=PurgeResult,
    errors=(404,),
)
async def post_cluster_purge_staging(request: web.Request, body: PurgeRequest) -> web.Response:
    return ok((await _run_purge(services(request), body)).model_dump_json().encode())


async def _run_purge(node: Services, body: PurgeRequest) -> PurgeResult:
    note(model=body.model_id or "all", nodes=",".join(body.nodes or ("all",)), dry_run=body.dry_run)
    _check_nodes(node, body.nodes)
    model_id = body.model_id or None
    if model_id is not None and not await _is_known(node, model_id):
        raise ApiError(404, f"Model {model_id} is unknown and staged nowhere; nothing was purged")
    wanted = body.model_copy(update={"model_id": model_id, "nodes": None})
    results = await _purge(node, wanted, body.nodes)
    return PurgeResult(
        command_id=CommandId(str(uuid4())),
        message=_message(body, results),
        dry_run=body.dry_run,
        nodes=results,
    )


async def _everywhere(node: Services) -> list[NodeStorageAnswer]:
    """This node first, then the others by name."""
    asked = asyncio.create_task(STORAGE.ask_others(node))
    answers = [await _own(node)]
    for one in sorted(await asked, key=lambda one: (one.peer.name, one.peer.node_id)):
        answer = NodeStorageAnswer(node_id=one.peer.node_id, name=one.peer.name, ok=False)
        storage, why = _read(one)
        answers.append(answer.model_copy(update={"ok": why is None, "error": why} | storage))
    return answers


async def _own(node: Services) -> NodeStorageAnswer:
    mine = NodeStorageAnswer(node_id=node.identity.node_id, name=node.identity.name, ok=True)
    try:
        return mine.model_copy(update={"storage": await node.store.evictor.storage()})
    except StoreError as error:
        return mine.model_copy(update={"ok": False, "error": error.message})


def _read(one: Asked) -> tuple[dict[str, NodeStorage], str | None]:
    """What a node said, or why that is nothing; another version may say what we cannot read."""
    if one.answer is None:
        return {}, str(one.error)
    try:
        return {"storage": NodeStorage.model_validate_json(one.answer)}, None
    except ValidationError:
        return {}, f"{one.peer.name} answers in a way that this version cannot read"


def _check_nodes(node: Services, wanted: list[NodeId] | None) -> None:
    known = {node.identity.node_id, *(peer.node_id for peer in node.peers.others())}
    unknown = [node_id for node_id in wanted or () if node_id not in known]
    if unknown:
        raise ApiError(404, f"no node {unknown[0]} in this cluster; nothing was purged")


async def _is_known(node: Services, model_id: ModelId) -> bool:
    """Whether a model is staged somewhere, or could be: a wrong name must not look like success."""
    downloads = node.replica.state.downloads.values()
    if any(e.shard_metadata.model_card.model_id == model_id for d in downloads for e in d):
        return True
    if (await node.models.catalogue()).get(model_id) is not None:
        return True
    staged = [
        copy.directory.rpartition("/")[2]
        for answer in await _everywhere(node)
        if answer.storage is not None
        for copy in answer.storage.staged_models
    ]
    return unchecked_directory_name(model_id) in staged


async def _purge(
    node: Services, wanted: PurgeRequest, only: list[NodeId] | None
) -> list[NodePurge]:
    names = {node.identity.node_id: node.identity.name}
    names |= {peer.node_id: peer.name for peer in node.peers.others()}
    targets = [node_id for node_id in names if only is None or node_id in only]

    async def one(node_id: NodeId) -> NodePurge:
        try:
            raw = await PURGE.send(node, node_id, wanted)
            done = NodePurge.model_validate_json(raw)
        except PeerError as error:
            done = NodePurge(node_id=node_id, ok=False, error=str(error))
        except ValidationError:
            why = f"{names[node_id]} answers in a way that this version cannot read"
            done = NodePurge(node_id=node_id, ok=False, error=why)
        return done.model_copy(update={"name": names[node_id]})

    return list(await asyncio.gather(*map(one, targets)))


def _message(body: PurgeRequest, results: list[NodePurge]) -> str:
    silent = sum(not result.ok for result in results)
    freed = sum(result.freed_bytes for result in results)
    did = "would free" if body.dry_run else "freed"
    where = f"{len(results)} node{'' if len(results) == 1 else 's'}"
    missing = f"; {silent} did not answer" if silent else ""
    scope = f" for model {body.model_id}" if body.model_id else ""
    return f"Staging purge on {where} {did} {freed} bytes{missing}{scope}"


async def _answer_storage(node: Services) -> NodeStorage:
    return await node.store.evictor.storage()


async def _answer_purge(node: Services, order: PurgeRequest) -> NodePurge:
    return await node.store.evictor.purge(order.model_id, dry_run=order.dry_run)


STORAGE = NodeCall("store.storage", _answer_storage, deadline_s=5.0)
PURGE = NodeCall("store.purge", _answer_purge, PurgeRequest, deadline_s=60.0)
