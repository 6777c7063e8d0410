"""`/v1/traces…`: recorded traces of this node, and of the cluster merged by task id.

`/v1/cluster/traces…` are our own: the list with ranks and silent nodes, and deleting everywhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter

from skulkd.api.audit import note
from skulkd.api.errors import JSON_TYPE, ApiError, ok
from skulkd.api.node_calls import NodeCall
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.observe.trace_collector import METHOD as PART
from skulkd.observe.trace_files import BadTraceId, NoSuchTrace, Trace, chrome_json
from skulkd.observe.trace_stats import item_of, merged, merged_items, source_nodes, stats_of
from skulkd.peers import Asked
from skulkd.wire.base import CamelModel, narrow
from skulkd.wire.ids import NodeId, TaskId
from skulkd.wire.tracing import (
    ClusterDeleteTracesResponse,
    DeleteTracesRequest,
    DeleteTracesResponse,
    TraceEventResponse,
    TraceItem,
    TraceItems,
    TraceListResponse,
    TracePart,
    TraceResponse,
    TraceSilence,
    TraceStatsResponse,
)

routes = RouteTable("traces")

_ITEMS = TypeAdapter(list[TraceItem])
_EVENTS = TypeAdapter(list[TraceEventResponse])


@routes.get("/v1/traces", scope="read", summary="Traces on this node", answer=TraceListResponse)
async def get_traces(request: web.Request) -> web.StreamResponse:
    items = TraceItems(traces=await _own_items(services(request)))
    return await send(request, narrow(items, TraceListResponse).model_dump_json().encode())


@routes.get(
    "/v1/traces/cluster",
    scope="read",
    summary="Traces on all nodes, one per task",
    answer=TraceListResponse,
)
async def get_traces_of_cluster(request: web.Request) -> web.StreamResponse:
    items = await _cluster_items(services(request))
    return await send(request, narrow(items, TraceListResponse).model_dump_json().encode())


@routes.get(
    "/v1/cluster/traces",
    scope="read",
    summary="The same with ranks, command ids and the nodes that did not answer",
    answer=TraceItems,
)
async def get_cluster_traces(request: web.Request) -> web.StreamResponse:
    items = await _cluster_items(services(request))
    return await send(request, items.model_dump_json().encode())


async def _cluster_items(node: Services) -> TraceItems:
    own, asked = await asyncio.gather(_own_items(node), LIST.ask_others(node))
    items, silent = list(own), []
    for one in asked:
        told, why = _items_of(one)
        items += told
        if why:
            silent.append(TraceSilence(node_id=one.peer.node_id, error=why))
    return TraceItems(traces=merged_items(items), unreachable_nodes=silent)


def _items_of(asked: Asked) -> tuple[list[TraceItem], str]:
    """What another node has, or why that is not known."""
    if asked.answer is None:
        return [], str(asked.error)
    try:
        return _ITEMS.validate_json(asked.answer, extra="ignore"), ""
    except ValueError as error:
        return [], str(error)[:500]


@routes.post(
    "/v1/traces/delete",
    scope="operate",
    summary="Delete traces of this node",
    body=DeleteTracesRequest,
    answer=DeleteTracesResponse,
    errors=(400,),
)
async def post_delete_traces(request: web.Request, body: DeleteTracesRequest) -> web.Response:
    note(traces=len(body.task_ids))
    answer = await _delete(services(request), body)
    return ok(answer.model_dump_json().encode())


@routes.post(
    "/v1/cluster/traces/delete",
    scope="operate",
    summary="Delete traces on all nodes",
    body=DeleteTracesRequest,
    answer=ClusterDeleteTracesResponse,
    errors=(400,),
)
async def post_cluster_delete_traces(
    request: web.Request, body: DeleteTracesRequest
) -> web.Response:
    node = services(request)
    note(traces=len(body.task_ids))
    deleted = set((await _delete(node, body)).deleted)
    silent = []
    for one in await DELETE.ask_others(node, body):
        gone, why = _deleted_by(one)
        deleted |= gone
        if why:
            silent.append(TraceSilence(node_id=one.peer.node_id, error=why))
    answer = ClusterDeleteTracesResponse(
        deleted=[one for one in body.task_ids if one in deleted],
        not_found=[one for one in body.task_ids if one not in deleted],
        unreachable_nodes=silent,
    )
    return ok(answer.model_dump_json().encode())


def _deleted_by(asked: Asked) -> tuple[set[TaskId], str]:
    """What another node has deleted, or why that is not known."""
    if asked.answer is None:
        return set(), str(asked.error)
    try:
        told = DeleteTracesResponse.model_validate_json(asked.answer, extra="ignore")
    except ValueError as error:
        return set(), str(error)[:500]
    return set(told.deleted), ""


async def _delete(node: Services, order: DeleteTracesRequest) -> DeleteTracesResponse:
    try:
        deleted, missing = await asyncio.to_thread(node.observe.traces.files.delete, order.task_ids)
    except BadTraceId as error:
        raise ApiError(400, str(error)) from error
    return DeleteTracesResponse(deleted=deleted, not_found=missing)


async def _own_items(node: Services) -> list[TraceItem]:
    every = await asyncio.to_thread(node.observe.traces.files.every)
    names = _names(node)
    return [item_of(one, source_nodes(one, names, node.identity.node_id)) for one in every]


def _names(node: Services) -> Mapping[NodeId, str]:
    known = node.state.current().node_identities
    names = {node_id: identity.friendly_name for node_id, identity in known.items()}
    return {**names, node.identity.node_id: node.identity.name}


async def _own(node: Services, task_id: str) -> Trace:
    try:
        return await asyncio.to_thread(node.observe.traces.files.read, task_id)
    except BadTraceId as error:
        raise ApiError(400, str(error)) from error
    except NoSuchTrace as error:
        raise ApiError(404, f"Trace not found: {task_id[:200]}") from error


async def _anywhere(node: Services, task_id: str) -> Trace:
    """The whole trace, put together from all nodes when this one has not all of it."""
    found = []
    try:
        own = await _own(node, task_id)
        if not own.partial:
            return own
        found.append(own)
    except ApiError as error:
        if error.status != 404:
            raise
    for one in await GET.ask_others(node, TraceQuestion(task_id=task_id)):
        if one.answer is not None and one.answer != b"null":
            found.append(_from_wire(one.answer, TaskId(task_id)))
    if not found:
        raise ApiError(404, f"Trace not found: {task_id[:200]}")
    return merged(found)


Find = Callable[[Services, str], Any]


def _declare(base: str, where: str, find: Find) -> None:
    """The three views of one trace: events, sums, and the file."""

    async def get_trace(request: web.Request) -> web.StreamResponse:
        node = services(request)
        trace = await find(node, request.match_info["task_id"])
        body = TraceResponse(
            task_id=trace.task_id, traces=trace.events, source_nodes=_sources(node, trace)
        )
        return await send(request, body.model_dump_json().encode())

    async def get_trace_stats(request: web.Request) -> web.StreamResponse:
        node = services(request)
        trace = await find(node, request.match_info["task_id"])
        body = stats_of(trace, _sources(node, trace))
        return await send(request, body.model_dump_json().encode())

    async def get_trace_file(request: web.Request) -> web.StreamResponse:
        trace = await find(services(request), request.match_info["task_id"])
        name = f'attachment; filename="trace_{trace.task_id}.json"'
        return await send(request, chrome_json(trace), JSON_TYPE, {"Content-Disposition": name})

    if find is _anywhere:
        # The name of a handler is its operation's id, which must be one of a kind.
        for handler in (get_trace, get_trace_stats, get_trace_file):
            handler.__name__ = handler.__name__.replace("get_", "get_cluster_")
    facts: dict[str, Any] = {"errors": (400, 404), "scope": "read"}
    path = f"{base}/{{task_id}}"
    routes.get(path, summary=f"One trace{where}", answer=TraceResponse, **facts)(get_trace)
    routes.get(
        f"{path}/stats", summary=f"What a trace adds up to{where}",
        answer=TraceStatsResponse, **facts,
    )(get_trace_stats)  # fmt: skip
    routes.get(
        f"{path}/raw", summary=f"A trace as a file for Perfetto{where}",
        answer=dict[str, Any], **facts,
    )(get_trace_file)  # fmt: skip


# The literal word comes first, or it would be taken for a task id.
_declare("/v1/traces/cluster", ", from any node", _anywhere)
_declare("/v1/traces", "", _own)


def _sources(node: Services, trace: Trace) -> Any:
    return source_nodes(trace, _names(node), node.identity.node_id)


class TraceQuestion(CamelModel):
    task_id: str


async def _answer_list(node: Services) -> bytes:
    return _ITEMS.dump_json(await _own_items(node), by_alias=True)


async def _answer_trace(node: Services, question: TraceQuestion) -> bytes:
    try:
        return _to_wire(await _own(node, question.task_id))
    except ApiError:
        return b"null"


async def _store_part(node: Services, part: TracePart) -> bytes:
    await node.observe.traces.store(part)
    return b"{}"


LIST = NodeCall("trace.list", _answer_list, deadline_s=5.0)
GET = NodeCall("trace.get", _answer_trace, TraceQuestion, deadline_s=9.0)
DELETE = NodeCall("trace.delete", _delete, DeleteTracesRequest, deadline_s=5.0)
NodeCall(PART, _store_part, TracePart, deadline_s=5.0)


def _to_wire(trace: Trace) -> bytes:
    events = json.loads(_EVENTS.dump_json(trace.events, by_alias=True))
    return json.dumps(
        {
            "createdAt": trace.created_at,
            "fileSize": trace.file_size,
            "commandId": trace.command_id,
            "worldSize": trace.world_size,
            "events": events,
        }
    ).encode()


def _from_wire(answer: bytes, task_id: TaskId) -> Trace:
    told = json.loads(answer)
    return Trace(
        task_id,
        str(told["createdAt"]),
        int(told["fileSize"]),
        _EVENTS.validate_python(told["events"], extra="ignore"),
        told.get("commandId"),
        int(told["worldSize"]),
    )
