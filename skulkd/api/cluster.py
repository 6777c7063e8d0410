"""`GET /v1/cluster`: who is there, who leads, how old and how well each node is.

Our own addition to the contract. Every node is asked at the same time; whoever does not answer is
in the list with the reason. Clocks are compared by the round trip of that question.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from aiohttp import web
from pydantic import ValidationError

from skulkd.api.audit import note
from skulkd.api.error_mapping import command_error
from skulkd.api.errors import ok
from skulkd.api.node_calls import NodeCall
from skulkd.api.node_warnings import node_warnings
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.cluster.master_status import MasterStatus
from skulkd.peers import PeerError, PeerNode, PeerRefused
from skulkd.wire.base import format_offset
from skulkd.wire.cluster import (
    ClusterMember,
    ClusterSession,
    ClusterView,
    ForgetAnswer,
    ForgetRequest,
    LostNode,
    NodePresence,
)
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State

routes = RouteTable("cluster")
NOT_HERE = "not in the cluster any more"
_STARTED = time.monotonic()


@routes.get(
    "/v1/cluster",
    scope="read",
    summary="Members, master, session, versions, clocks and links",
    answer=ClusterView,
)
async def get_cluster(request: web.Request) -> web.StreamResponse:
    body = await view_cluster(services(request))
    return await send(request, body.model_dump_json().encode())


@routes.post(
    "/v1/cluster/forget",
    scope="operate",
    summary="Stop listing a node that was lost and will not come back",
    body=ForgetRequest,
    answer=ForgetAnswer,
    errors=(404, 409, 503, 507),
)
async def post_forget(request: web.Request, body: ForgetRequest) -> web.Response:
    note(name=body.name)
    try:
        forgotten = await services(request).lost_nodes.forget(body.name)
    except PeerRefused as refused:
        raise command_error(refused) from refused
    return ok(forgotten.model_dump_json().encode())


async def view_cluster(node: Services) -> ClusterView:
    """Everybody that this node knows of."""
    own, master = node.identity.node_id, node.master_status()
    heard = [
        ClusterMember(
            node_id=own,
            name=node.identity.name,
            is_master=own == master.master_node_id,
            is_local=True,
            ok=True,
            version=node.identity.version,
            session=master.session,
            uptime_seconds=_hello(node).uptime_seconds,
            round_trip_ms=0.0,
            clock_skew_seconds=0.0,
            clock_skew_error_seconds=0.0,
            api_addresses=list(node.api_addresses()),
            warnings=node_warnings(node),
            certificates=node.tls.certificates(),
        ),
        *await asyncio.gather(*(_greet(node, peer, master) for peer in node.peers.others())),
    ]
    state = node.state.current()
    present = {member.node_id for member in heard}
    heard += [_missing(state, one, master) for one in state.last_seen if one not in present]
    return ClusterView(
        generated_at=format_offset(datetime.now(UTC)),
        local_node_id=own,
        master_node_id=master.master_node_id,
        session=_session(master),
        namespace=node.settings.started.config.cluster.namespace,
        nodes=[_with_readings(node, state, member) for member in heard],
        lost=lost_nodes(node),
    )


def _hello(node: Services) -> NodePresence:
    master = node.master_status()
    return NodePresence(
        name=node.identity.name,
        version=node.identity.version,
        now=time.time(),
        uptime_seconds=time.monotonic() - _STARTED,
        master_node_id=master.master_node_id,
        session=master.session,
        api_addresses=list(node.api_addresses()),
        warnings=node_warnings(node),
        certificates=node.tls.certificates(),
    )


def lost_nodes(node: Services) -> list[LostNode]:
    """Members that left without notice and are not back."""
    now = datetime.now(UTC)
    return [
        LostNode(
            name=member.name,
            node_id=member.node_id,
            since=member.since,
            since_seconds=round(max(0.0, (now - member.since).total_seconds()), 3),
        )
        for member in node.lost_nodes.missing()
    ]


async def _greet(node: Services, peer: PeerNode, master: MasterStatus) -> ClusterMember:
    sent = time.time()
    facts: Mapping[str, object]
    try:
        answer = await HELLO.send(node, peer.node_id)
        back = time.time()
        hello = NodePresence.model_validate_json(answer, extra="ignore")
    except PeerError as error:
        facts = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    except ValidationError as error:
        facts = {"ok": False, "error": f"answered what this version does not know: {error}"}
    else:
        facts = _timed(hello, sent, back)
    return ClusterMember.model_validate(
        {
            "node_id": peer.node_id,
            "name": peer.name,
            "is_master": peer.node_id == master.master_node_id,
            "is_local": False,
            **facts,
        }
    )


def _timed(hello: NodePresence, sent: float, back: float) -> Mapping[str, object]:
    trip = max(0.0, back - sent)
    return {
        "ok": True,
        "version": hello.version,
        "session": hello.session,
        "uptime_seconds": hello.uptime_seconds,
        "api_addresses": hello.api_addresses,
        "warnings": hello.warnings,
        "certificates": hello.certificates,
        "round_trip_ms": round(trip * 1000, 3),
        "clock_skew_seconds": round(hello.now - (sent + trip / 2), 6),
        "clock_skew_error_seconds": round(trip / 2, 6),
    }


def _missing(state: State, node_id: NodeId, master: MasterStatus) -> ClusterMember:
    identity = state.node_identities.get(node_id)
    return ClusterMember(
        node_id=node_id,
        name=node_id if identity is None else identity.friendly_name,
        is_master=node_id == master.master_node_id,
        is_local=False,
        ok=False,
        error=NOT_HERE,
    )


def _with_readings(node: Services, state: State, member: ClusterMember) -> ClusterMember:
    readings = node.telemetry.of(member.node_id)
    seen = None
    if readings is not None:
        seen = max(0.0, (datetime.now(UTC) - readings.seen).total_seconds())
    return member.model_copy(
        update={
            "last_seen_seconds": None if seen is None else round(seen, 3),
            "health": state.node_health.get(member.node_id),
            "draining": None if readings is None else readings.draining,
            "links": [] if readings is None else list(readings.links),
        }
    )


def _session(master: MasterStatus) -> ClusterSession | None:
    if master.session is None:
        return None
    age_s = max(0.0, time.monotonic() - master.since)
    return ClusterSession(id=master.session, age_seconds=round(age_s, 3))


async def _answer_hello(node: Services) -> NodePresence:
    return _hello(node)


HELLO = NodeCall("node.hello", _answer_hello, deadline_s=3.0)
