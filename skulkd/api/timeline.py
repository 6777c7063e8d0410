"""`GET /v1/diagnostics/cluster/timeline`: the phases of all runners of all nodes, side by side.

`GET /v1/cluster/timeline` is our own: the same with live positions, deadlines and clock skews.
Every node is asked at the same moment; whoever does not answer is listed with the reason. The
same question measures how far the nodes' clocks are apart.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from pydantic_core import to_json

from skulkd.api.cluster import lost_nodes
from skulkd.api.node_calls import NodeCall
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.observe.timeline import (
    BadTimelinePart,
    TimelinePart,
    clock_offset_s,
    read_part,
    side_by_side,
    stitch,
)
from skulkd.peers import PeerError, PeerNode
from skulkd.wire.base import format_offset, json_keys
from skulkd.wire.timeline import (
    ClusterTimeline,
    ClusterTimelineEntry,
    ClusterTimelineLimits,
    ClusterTimelineRunner,
    ClusterTimelineSkew,
    ClusterTimelineUnreachable,
    NodeTimeline,
    Timeline,
)
from skulkd.worker.options import worker_options

routes = RouteTable("diagnostics")
NOT_HERE = "not in the cluster any more"
_TIMELINE_KEYS = json_keys(ClusterTimeline)
_RUNNER_KEYS = json_keys(ClusterTimelineRunner)
_ENTRY_KEYS = json_keys(ClusterTimelineEntry)


@dataclass(frozen=True, slots=True)
class _Heard:
    """What came of asking one node."""

    peer: PeerNode
    part: TimelinePart | None
    sent: datetime
    received: datetime
    error: str = ""


@routes.get(
    "/v1/diagnostics/cluster/timeline",
    scope="read",
    summary="Phases of all runners side by side",
    answer=ClusterTimeline,
)
async def get_diagnostics_timeline(request: web.Request) -> web.StreamResponse:
    document = await cluster_timeline(services(request))
    return await send(request, to_json(reference_timeline(document)))


@routes.get(
    "/v1/cluster/timeline",
    scope="read",
    summary="The same with live positions, pending tasks, deadlines and clock skews",
    answer=Timeline,
)
async def get_cluster_timeline(request: web.Request) -> web.StreamResponse:
    return await send(request, to_json(await cluster_timeline(services(request))))


def reference_timeline(document: dict[str, Any]) -> dict[str, Any]:
    """The timeline without the keys that the reference lacks.

    Picks keys instead of reading models: there may be thousands of entries.
    """
    whole = {key: document[key] for key in _TIMELINE_KEYS}
    whole["runners"] = [_picked(one, _RUNNER_KEYS) for one in document["runners"]]
    whole["timeline"] = [_picked(one, _ENTRY_KEYS) for one in document["timeline"]]
    return whole


def _picked(item: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: item[key] for key in keys if key in item}


async def cluster_timeline(node: Services) -> dict[str, Any]:
    """The timeline as JSON, with every node that answered within the deadline."""
    own = node.identity.node_id
    heard = await asyncio.gather(*(_ask(node, peer) for peer in node.peers.others()))
    known = [(one, one.part) for one in heard if one.part is not None]
    runners, entries = stitch([_own_part(node), *(part for _, part in known)])
    silent = [
        ClusterTimelineUnreachable(node_id=one.peer.node_id, error=one.error)
        for one in heard
        if one.part is None
    ]
    asked = {own, *(one.peer.node_id for one in heard)}
    silent += [
        ClusterTimelineUnreachable(node_id=missing, error=NOT_HERE)
        for missing in node.state.current().last_seen
        if missing not in asked
    ]
    frame = Timeline(
        generated_at=format_offset(datetime.now(UTC)),
        local_node_id=own,
        master_node_id=node.master_status().master_node_id,
        unreachable_nodes=silent,
        clock_skews=[_skew(one, part) for one, part in known],
        limits=_limits(node),
        lost_nodes=lost_nodes(node),
    )
    document: dict[str, Any] = frame.model_dump(mode="json")
    document["runners"], document["timeline"] = runners, entries
    return document


def _own_part(node: Services) -> TimelinePart:
    return read_part(_node_timeline(node))


async def _answer_timeline(node: Services) -> bytes:
    return _node_timeline(node)


def _node_timeline(node: Services) -> bytes:
    asked_at = datetime.now(UTC)
    runners, entries = side_by_side(node.worker.diagnostics())
    told = NodeTimeline(
        asked_at=format_offset(asked_at),
        answered_at=format_offset(datetime.now(UTC)),
        runners=runners,
        timeline=entries,
    )
    return told.model_dump_json().encode()


async def _ask(node: Services, peer: PeerNode) -> _Heard:
    sent = datetime.now(UTC)
    try:
        answer = await TIMELINE.send(node, peer.node_id)
        part = read_part(answer)
    except PeerError as error:
        why = f"{type(error).__name__}: {error}"
        return _Heard(peer, None, sent, datetime.now(UTC), why)
    except BadTimelinePart as error:
        why = f"{peer.name} answered what this version does not know: {error}"
        return _Heard(peer, None, sent, datetime.now(UTC), why)
    return _Heard(peer, part, sent, datetime.now(UTC))


def _skew(one: _Heard, part: TimelinePart) -> ClusterTimelineSkew:
    offset_s, round_trip_s = clock_offset_s(part, one.sent, one.received)
    return ClusterTimelineSkew(
        node_id=one.peer.node_id,
        offset_seconds=round(offset_s, 6),
        round_trip_seconds=round(round_trip_s, 6),
    )


def _limits(node: Services) -> ClusterTimelineLimits:
    options = worker_options(node.settings.started.config.runtime)
    runner, patience = options.runner, options.timeouts
    return ClusterTimelineLimits(
        eval_seconds=runner.eval_deadline_s,
        agreement_seconds=runner.eval_deadline_s,
        warmup_seconds=runner.warmup_deadline_s,
        connect_seconds=runner.connect_deadline_s,
        first_report_seconds=patience.first_report_s,
        progress_seconds=runner.eval_deadline_s + patience.margin_s,
    )


TIMELINE = NodeCall("observe.timeline", _answer_timeline, deadline_s=2.0)
