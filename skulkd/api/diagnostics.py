"""`/v1/diagnostics/…`: what this node and the cluster look like from inside."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from aiohttp import web
from pydantic import ValidationError

from skulkd.api.cluster import NOT_HERE
from skulkd.api.node_calls import NodeCall
from skulkd.api.node_warnings import mac_warnings
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.cluster.telemetry import NodeReadings
from skulkd.machine.collect import MemoryNow
from skulkd.machine.redact import redact_text
from skulkd.machine.warnings import leaked_wired_warning
from skulkd.observe.placement_view import view_placements, with_disagreements
from skulkd.peers import Asked
from skulkd.wire.base import format_offset
from skulkd.wire.diagnostics import (
    ClusterDiagnostics,
    ClusterNodeDiagnostics,
    NodeDiagnostics,
    NodeResourceDiagnostics,
    NodeRuntimeDiagnostics,
)
from skulkd.wire.machine import NodeIdentity

routes = RouteTable("diagnostics")
UNKNOWN = "Unknown"


@routes.get(
    "/v1/diagnostics/node",
    scope="read",
    summary="Everything about this node",
    answer=NodeDiagnostics,
)
async def get_node_diagnostics(request: web.Request) -> web.StreamResponse:
    bundle = await diagnose(services(request))
    return await send(request, bundle.model_dump_json().encode())


@routes.get(
    "/v1/diagnostics/cluster",
    scope="read",
    summary="The bundle of every node that can be reached",
    answer=ClusterDiagnostics,
)
async def get_cluster_diagnostics(request: web.Request) -> web.StreamResponse:
    node = services(request)
    own = node.identity.node_id
    bundle, asked = await asyncio.gather(diagnose(node), DIAGNOSE.ask_others(node))
    nodes = [
        ClusterNodeDiagnostics(node_id=own, ok=True, diagnostics=bundle),
        *(_bundle_of(one) for one in asked),
    ]
    nodes = _with_warnings_across(nodes)
    present = {one.node_id for one in nodes}
    nodes += [
        ClusterNodeDiagnostics(node_id=missing, ok=False, error=NOT_HERE)
        for missing in node.state.current().last_seen
        if missing not in present
    ]
    body = ClusterDiagnostics(
        generated_at=_now(),
        local_node_id=own,
        master_node_id=node.master_status().master_node_id,
        nodes=nodes,
    )
    return await send(request, body.model_dump_json().encode())


@routes.get(
    "/v1/diagnostics/cluster/{node_id}",
    scope="read",
    summary="The bundle of one node",
    answer=NodeDiagnostics,
    errors=(404, 502),
)
async def get_one_node_diagnostics(request: web.Request) -> web.StreamResponse:
    asked = request.match_info["node_id"]
    unknown = f"Node diagnostics endpoint not reachable: {asked[:200]}"
    return await send(request, await DIAGNOSE.forward(request, unknown=unknown))


def _bundle_of(asked: Asked) -> ClusterNodeDiagnostics:
    """What another node said of itself, or why it is not here."""
    node_id = asked.peer.node_id
    if asked.answer is None:
        why = f"{type(asked.error).__name__}: {asked.error}"
        return ClusterNodeDiagnostics(node_id=node_id, ok=False, error=why)
    try:
        # A newer node may say more than this one knows.
        bundle = NodeDiagnostics.model_validate_json(asked.answer, extra="ignore")
    except ValidationError as error:
        why = f"{asked.peer.name} answered what this version does not know: {error}"
        return ClusterNodeDiagnostics(node_id=node_id, ok=False, error=why)
    return ClusterNodeDiagnostics(node_id=node_id, ok=True, diagnostics=bundle)


def _with_warnings_across(nodes: list[ClusterNodeDiagnostics]) -> list[ClusterNodeDiagnostics]:
    """What only shows when all nodes are seen together."""
    bundles = [one.diagnostics for one in nodes if one.diagnostics is not None]
    warned = {bundle.runtime.node_id: bundle for bundle in with_disagreements(bundles)}
    return [
        one.model_copy(update={"diagnostics": warned.get(one.node_id, one.diagnostics)})
        for one in nodes
    ]


async def diagnose(node: Services) -> NodeDiagnostics:
    """The bundle of this node; a reading that fails is null, with a warning."""
    worker = node.worker
    memory = await node.monitor.read_memory_now()
    processes, process_warnings = await node.monitor.read_processes(worker.runner_pids())
    own = node.identity.node_id
    # State and records of the same moment, or the difference would be a warning.
    state = node.state.current()
    supervisors = worker.diagnostics()
    readings = node.telemetry.of(own)
    placements, warnings = view_placements(
        state, supervisors, own, node.master_status().master_node_id
    )
    alive = any(record.process_alive for record in supervisors)
    leaked = leaked_wired_warning(memory.wired, runner_alive=alive)
    gathered = readings.warnings if readings is not None else ()
    everything = {*warnings, *memory.warnings, *process_warnings, *gathered}
    everything |= {str(warning) for warning in (*worker.warnings(), *mac_warnings(node))}
    if leaked is not None:
        everything.add(leaked)
    identity = readings.identity if readings is not None else None
    return NodeDiagnostics(
        generated_at=_now(),
        runtime=_runtime(node, identity),
        identity=identity,
        resources=_resources(node, readings, memory),
        processes=list(processes),
        supervisor_runners=supervisors,
        placements=placements,
        warnings=sorted(everything),
    )


def _runtime(node: Services, identity: NodeIdentity | None) -> NodeRuntimeDiagnostics:
    settings = node.settings.started
    logging = settings.config.logging
    unbuffered = node.settings.sources.environ.get("PYTHONUNBUFFERED", "")
    own = node.identity.node_id
    return NodeRuntimeDiagnostics(
        node_id=own,
        hostname=node.identity.hostname,
        friendly_name=node.identity.name,
        is_master=own == node.master_status().master_node_id,
        master_node_id=node.master_status().master_node_id,
        cwd=node.identity.cwd,
        config_path=str(settings.file),
        config_file_exists=settings.file.exists(),
        skulk_version=node.identity.version,
        skulk_commit=UNKNOWN if identity is None else identity.skulk_commit,
        libp2p_namespace=settings.config.cluster.namespace,
        python_unbuffered=unbuffered.lower() in {"1", "true"},
        tracing_enabled=node.replica.state.tracing_enabled,
        structured_logging_configured=logging.enabled and bool(logging.ingest_url),
        logging_ingest_url=redact_text(logging.ingest_url) or None,
    )


def _resources(
    node: Services, readings: NodeReadings | None, memory: MemoryNow
) -> NodeResourceDiagnostics:
    own = node.identity.node_id
    return NodeResourceDiagnostics(
        gathered_memory=readings.memory if readings is not None else None,
        current_memory=memory.memory,
        current_wired=memory.wired,
        disk=readings.disk if readings is not None else None,
        system=readings.system if readings is not None else None,
        network=node.state.current().node_network.get(own),
    )


def _now() -> str:
    return format_offset(datetime.now(UTC))


DIAGNOSE = NodeCall("node.diagnose", diagnose, deadline_s=5.0)
