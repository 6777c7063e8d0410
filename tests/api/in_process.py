"""An API server inside the test's own event loop, with real parts, for routes made by a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from aiohttp import web

from skulkd.api.app import FAMILIES, build_app
from skulkd.api.auth import Policy, own_names
from skulkd.api.downloads import serve_downloads
from skulkd.api.lifecycle import Lifecycle
from skulkd.api.metrics import Metrics
from skulkd.api.node_calls import serve_calls
from skulkd.api.protocol import protocol_factory
from skulkd.api.routes import RouteTable
from skulkd.api.services import Access, Identity, Services, Timeouts
from skulkd.api.token_uses import TokenUses
from skulkd.cluster.core import Core
from skulkd.cluster.local_peers import LocalPeers
from skulkd.cluster.lost_nodes import LostNodes
from skulkd.cluster.master_status import MasterStatus
from skulkd.cluster.replica import Replica
from skulkd.cluster.state_view import StateView
from skulkd.cluster.telemetry import Telemetry
from skulkd.cluster.token_admin import TokenAdmin
from skulkd.cluster.tracing_switch import TracingSwitch
from skulkd.machine.collect import MachineMonitor
from skulkd.machine.redact import redact_text
from skulkd.observe.event_log import EventLog
from skulkd.observe.observability import build_observability
from skulkd.observe.trace_collector import TraceCollector
from skulkd.observe.trace_files import TraceFiles
from skulkd.peers import Peers
from skulkd.requests.dispatch import DispatchDeps, Dispatcher, WaitLimits
from skulkd.requests.remote_tasks import serve_tasks
from skulkd.requests.service import Requests
from skulkd.scheduling.node_facts import own_facts
from skulkd.scheduling.placements import Placements
from skulkd.scheduling.unloads import Unloads
from skulkd.settings.paths import find_paths
from skulkd.settings.running import RunningSettings, Sources
from skulkd.store.config import load_store_config
from skulkd.store.library import ModelLibrary
from skulkd.store.local_models import LocalModels
from skulkd.store.service import StoreDeps, build_store
from skulkd.swarm.cluster_executor import ClusterExecutor
from skulkd.swarm.drain import Drain
from skulkd.swarm.swarm import Swarm, SwarmDeps
from skulkd.wire.config import EventLogSection, SkulkConfig
from skulkd.wire.events import NodeDownloadProgress
from skulkd.wire.ids import NodeId
from skulkd.worker.worker import Worker, WorkerDeps
from tests.daemon_process import NO_HUB
from tests.local_commands import LocalCommands, leading_core
from tests.local_journal import local_journal

SECRET = "a-secret-of-the-tests"


def some_services(
    home: Path,
    flags: dict[str, object] | None = None,
    peers: Peers | None = None,
    worker: Worker | None = None,
    limits: WaitLimits | None = None,
    deps: DispatchDeps | None = None,
    timeouts: Timeouts | None = None,
    core: Core | None = None,
) -> Services:
    """A node that has read nothing and knows only itself; nobody runs its worker."""
    environ = {"SKULK_HOME": str(home), "HOME": str(home), "HF_ENDPOINT": NO_HUB}
    sources = Sources(find_paths(environ), environ, flags or {}, None, "testhost", home)
    settings = RunningSettings(sources.load(), sources)
    api = settings.started.config.api
    policy = Policy(
        secret=SECRET,
        own_names=own_names("testhost"),
        token_on_loopback=api.token_on_loopback,
        cors_origins=frozenset(api.cors_origins),
        tokens=lambda: core.tokens,
    )
    replica, telemetry, events = Replica(), Telemetry(), EventLog()
    peers = peers or LocalPeers(NodeId("node-test"))
    view = StateView(replica, telemetry)
    setup = load_store_config(
        settings.started.config,
        sources.paths,
        environ,
        node_id=peers.node_id,
        name="kite1",
        hostname="testhost",
    )
    library = ModelLibrary(sources.paths, environ, store=setup.store_root, staging=setup.area)
    journal = local_journal(events, replica)
    models = LocalModels(sources.paths, library)
    worker = worker or Worker(
        node_id=peers.node_id,
        state=lambda: replica.state,
        publish=journal.append,
        deps=WorkerDeps(library=library, log_dir=home, peers=peers),
    )
    requests = Requests(Dispatcher(peers, lambda: replica.state, journal, worker, limits, deps))
    around = StoreDeps(
        node_id=peers.node_id,
        state=lambda: replica.state,
        view=lambda: replica.state,
        publish=lambda entry: journal.append(NodeDownloadProgress(download_progress=entry)),
        running=list,
        measured=dict,
        event_log=sources.paths.event_log,
        logs=sources.paths.log_file.parent,
        environ=environ,
        secret=SECRET,
    )
    swarm_deps = SwarmDeps(
        lambda: "kite1",
        "0.0.0",
        settings,
        peers,
        replica,
        telemetry,
        journal,
        ClusterExecutor(requests),
    )
    core = core or leading_core(peers.node_id)
    commands = LocalCommands(replica, journal, core)
    token_uses = TokenUses(lambda: core.tokens)
    journal.on_change(token_uses.end_revoked)
    facts = own_facts(models, settings)
    placements = Placements(view, replica, journal, peers, commands, facts)
    node = Services(
        identity=Identity(peers.node_id, "kite1", "testhost", "0.0.0", str(home)),
        access=Access(policy),
        settings=settings,
        monitor=MachineMonitor(name="kite1", models_dir=home, version="0.0.0"),
        replica=replica,
        telemetry=telemetry,
        state=view,
        events=events,
        lifecycle=Lifecycle(()),
        metrics=Metrics("0.0.0", dict),
        journal=journal,
        models=models,
        worker=worker,
        requests=requests,
        timeouts=timeouts or Timeouts(),
        placements=placements,
        unloads=Unloads(placements, replica, journal, peers, lambda: True, worker.hold_if_idle),
        tracing=TracingSwitch(replica, commands),
        tokens=TokenAdmin(lambda: core.tokens, commands, peers, token_uses.last_used),
        token_uses=token_uses,
        lost_nodes=LostNodes(core, commands),
        peers=peers,
        store=build_store(setup, library, around),
        master_status=lambda: MasterStatus(peers.node_id, f"{peers.node_id}/0"),
        observe=build_observability(
            settings.sources.paths,
            SkulkConfig(event_log=EventLogSection(enabled=False)),
            events,
            redact_text,
            TraceCollector(TraceFiles(settings.sources.paths.traces), peers, lambda: replica.state),
            "kite",
        ),
        swarm=Swarm(swarm_deps, Drain(home / "drain.json")),
    )
    serve_calls(node)
    serve_tasks(peers, worker)
    serve_downloads(peers, node.store)
    return node


@contextlib.asynccontextmanager
async def serving(
    node: Services, *extra: RouteTable, idle_limit_s: float = 20.0
) -> AsyncIterator[str]:
    """The URL of a server for this node; the families are the usual ones and those given."""
    families: Iterable[RouteTable] = (*FAMILIES, *extra)
    runner = web.AppRunner(build_app(node, families), shutdown_timeout=0.1)
    await runner.setup()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol_factory(runner, idle_limit_s), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await runner.cleanup()
        # Connections that were closed just now release their sockets in the next turn of the loop.
        await asyncio.sleep(0)
        node.monitor.close()
