"""`GET /v1/load` and `PUT /v1/drain`: how much work nodes have, and who takes no more of it.

Our own addition to the contract. A drain is told to the node itself, which keeps it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import web
from pydantic import ValidationError

from skulkd.api.audit import note
from skulkd.api.errors import ApiError
from skulkd.api.node_calls import NodeCall
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.cluster.commits import STORAGE_FAILED, STORAGE_FULL, storage_kind
from skulkd.peers import Asked, PeerError
from skulkd.swarm.node_load import total_load
from skulkd.wire.ids import NodeId
from skulkd.wire.load import (
    ClusterLoad,
    DrainAnswer,
    DrainedNode,
    DrainRequest,
    NodeLoad,
    NodeLoadRow,
)

routes = RouteTable("load")


@routes.get(
    "/v1/load",
    scope="read",
    summary="Work and free places of this node, of every node, and of all together",
    answer=ClusterLoad,
)
async def get_load(request: web.Request) -> web.StreamResponse:
    node = services(request)
    own = node.swarm.load()
    rows = [
        NodeLoadRow(node_id=own.node_id, name=own.name, ok=True, load=own),
        *(_row(asked) for asked in await LOAD.ask_others(node)),
    ]
    body = ClusterLoad(
        local_node_id=own.node_id,
        node=own,
        nodes=rows,
        total=total_load([row.load for row in rows if row.load is not None]),
    )
    return await send(request, body.model_dump_json().encode())


def _row(asked: Asked) -> NodeLoadRow:
    peer = asked.peer
    if asked.answer is None:
        said = "no answer" if asked.error is None else str(asked.error)
        return NodeLoadRow(node_id=peer.node_id, name=peer.name, ok=False, error=said)
    try:
        load = NodeLoad.model_validate_json(asked.answer, extra="ignore")
    except ValidationError as error:
        said = f"answered what this version does not know: {error.error_count()} values"
        return NodeLoadRow(node_id=peer.node_id, name=peer.name, ok=False, error=said)
    return NodeLoadRow(node_id=peer.node_id, name=peer.name, ok=True, load=load)


@routes.put(
    "/v1/drain",
    scope="operate",
    summary="Take nodes out of rotation, or back; what runs is finished",
    body=DrainRequest,
    answer=DrainAnswer,
    errors=(404, 503, 507),
)
async def put_drain(request: web.Request, body: DrainRequest) -> web.StreamResponse:
    node = services(request)
    wanted = _wanted(node, body.node_ids)
    note(draining=body.draining, nodes=",".join(name for _, name in wanted))
    found = await asyncio.gather(
        *(_tell(node, node_id, name, body.draining) for node_id, name in wanted)
    )
    if found and all(one.error_code is not None for one in found):
        raise _storage_refusal(found)
    answer = DrainAnswer(nodes=list(found))
    return await send(request, answer.model_dump_json().encode())


def _storage_refusal(nodes: Sequence[DrainedNode]) -> ApiError:
    """Nothing was changed anywhere: no node could write."""
    text = "\n".join(f"{one.name}: {one.error}" for one in nodes)
    kinds = {one.error_code for one in nodes}
    kind = STORAGE_FULL if kinds == {STORAGE_FULL} else STORAGE_FAILED
    return ApiError(507 if kind == STORAGE_FULL else 503, text, refusal={"kind": kind})


def _wanted(node: Services, asked_for: Sequence[str] | None) -> list[tuple[NodeId, str]]:
    """The nodes by id, each once. Raises ApiError 404 before anything is changed."""
    own = node.identity
    known = {own.node_id: own.name} | {peer.node_id: peer.name for peer in node.peers.others()}
    if asked_for is None:
        return list(known.items())
    missing = [node_id for node_id in asked_for if NodeId(node_id) not in known]
    if missing:
        raise ApiError(404, f"Node not found: {missing[0][:200]}")
    return [(NodeId(node_id), known[NodeId(node_id)]) for node_id in dict.fromkeys(asked_for)]


async def _tell(node: Services, node_id: NodeId, name: str, draining: bool) -> DrainedNode:
    if node_id == node.identity.node_id:
        return await _change_own(node, draining)
    try:
        raw = await DRAIN.send(node, node_id, DrainRequest(draining=draining))
        return DrainedNode.model_validate_json(raw, extra="ignore")
    except (PeerError, ValidationError) as error:
        return DrainedNode(node_id=node_id, name=name, ok=False, error=str(error))


async def _change_own(node: Services, draining: bool) -> DrainedNode:
    own = node.identity
    try:
        changed = await node.swarm.drain.change(draining=draining)
    except OSError as error:
        said = f"the drain cannot be written, nothing was changed: {error}"
        return DrainedNode(
            node_id=own.node_id,
            name=own.name,
            ok=False,
            error=said,
            error_code=storage_kind(error),
        )
    return DrainedNode(
        node_id=own.node_id,
        name=own.name,
        ok=True,
        draining=node.swarm.drain.draining,
        changed=changed,
    )


async def _answer_load(node: Services) -> NodeLoad:
    return node.swarm.load()


async def _answer_drain(node: Services, request: DrainRequest) -> DrainedNode:
    return await _change_own(node, request.draining)


LOAD = NodeCall("load.node", _answer_load, deadline_s=5.0)
DRAIN = NodeCall("drain.set", _answer_drain, DrainRequest, deadline_s=5.0)
