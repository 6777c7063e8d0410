"""An API server inside the test's own event loop, with real parts, for routes made by a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from aiohttp import web

from skulkd.api.app import FAMILIES, build_app
from skulkd.api.auth import Policy, own_names
from skulkd.api.dispatch import Dispatcher
from skulkd.api.downloads import serve_downloads
from skulkd.api.for_peers import serve_peers
from skulkd.api.inference import Inference, Pace
from skulkd.api.journal import Journal
from skulkd.api.lifecycle import Lifecycle
from skulkd.api.metrics import Metrics
from skulkd.api.model_shelf import ModelShelf
from skulkd.api.node_news import teller
from skulkd.api.observing import build_observing
from skulkd.api.placing import Placements
from skulkd.api.protocol import protocol_factory
from skulkd.api.routes import RouteTable
from skulkd.api.running_settings import RunningSettings, Sources
from skulkd.api.services import Access, Identity, Services
from skulkd.api.storage import serve_storage
from skulkd.api.swarm_jobs import ClusterExecutor
from skulkd.api.swarm_room import Base, SwarmRoom
from skulkd.api.trace_desk import TraceDesk
from skulkd.api.tracing_switch import TracingSwitch
from skulkd.api.worker_seam import Worker
from skulkd.cluster.lone_peers import LonePeers
from skulkd.cluster.reign import lone_reign
from skulkd.cluster.replica import Replica
from skulkd.cluster.state_view import StateView
from skulkd.cluster.telemetry import Telemetry
from skulkd.machine.collect import MachineMonitor
from skulkd.machine.redact import redact_text
from skulkd.observe.event_log import EventLog
from skulkd.observe.trace_files import TraceFiles
from skulkd.peers import Peers
from skulkd.settings.paths import find_paths
from skulkd.store.library import ModelLibrary
from skulkd.store.room import Surroundings, build_store
from skulkd.store.setup import store_setup
from skulkd.swarm.drain import Drain
from skulkd.wire.config import EventLogSection, SkulkConfig
from skulkd.wire.events import NodeDownloadProgress
from skulkd.wire.ids import NodeId
from skulkd.worker.worker import Around
from skulkd.worker.worker import Worker as RealWorker
from tests.daemon_process import NO_HUB

SECRET = "a-secret-of-the-tests"


def some_services(
    home: Path, flags: dict[str, object] | None = None, peers: Peers | None = None
) -> Services:
    """A node that has read nothing and knows only itself."""
    environ = {"SKULK_HOME": str(home), "HOME": str(home), "HF_ENDPOINT": NO_HUB}
    sources = Sources(find_paths(environ), environ, flags or {}, None, "testhost", home)
    settings = RunningSettings(sources.load(), sources)
    api = settings.started.config.api
    policy = Policy(
        secret=SECRET,
        own_names=own_names("testhost"),
        token_on_loopback=api.token_on_loopback,
        cors_origins=frozenset(api.cors_origins),
    )
    replica, telemetry, events = Replica(), Telemetry(), EventLog()
    peers = peers or LonePeers(NodeId("node-test"))
    inference = some_inference(home, replica, events, peers=peers)
    view = StateView(replica, telemetry)
    setup = store_setup(
        settings.started.config,
        sources.paths,
        environ,
        node_id=peers.node_id,
        name="kite1",
        hostname="testhost",
    )
    library = ModelLibrary(sources.paths, environ, store=setup.store_root, staging=setup.area)
    journal = Journal(events, replica)
    around = Surroundings(
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
    base = Base(
        lambda: "kite1",
        "0.0.0",
        settings,
        peers,
        replica,
        telemetry,
        inference.journal,
        ClusterExecutor(inference),
    )
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
        inference=inference,
        placements=some_placements(view, replica, inference, settings, peers),
        tracing=TracingSwitch(replica, inference.journal),
        peers=peers,
        store=build_store(setup, library, around),
        reign=lone_reign(peers.node_id),
        observe=build_observing(
            settings.sources.paths,
            SkulkConfig(event_log=EventLogSection(enabled=False)),
            events,
            redact_text,
            TraceDesk(TraceFiles(settings.sources.paths.traces), peers, lambda: replica.state),
            "kite",
        ),
        swarm=SwarmRoom(base, Drain(home / "drain.json")),
    )
    serve_peers(node)
    serve_storage(peers, node.store.caretaker)
    serve_downloads(peers, node.store)
    return node


def some_placements(
    view: StateView,
    replica: Replica,
    inference: Inference,
    settings: RunningSettings,
    peers: Peers,
) -> Placements:
    """Decides on this node, for the state that it has."""
    return Placements(view, replica, inference.journal, peers, teller(inference.models, settings))


def some_inference(
    home: Path,
    replica: Replica,
    events: EventLog,
    worker: Worker | None = None,
    pace: Pace | None = None,
    peers: Peers | None = None,
) -> Inference:
    """Everything for generation, with a worker that was given or one that nobody runs."""
    peers = peers or LonePeers(NodeId("node-test"))
    paths = find_paths({"SKULK_HOME": str(home), "HOME": str(home)})
    library, journal = ModelLibrary(paths, {}), Journal(events, replica)
    worker = worker or RealWorker(
        node_id=peers.node_id,
        state=lambda: replica.state,
        publish=journal.append,
        around=Around(library=library, log_dir=home, peers=peers),
    )
    dispatcher = Dispatcher(peers, lambda: replica.state, journal, worker)
    return Inference(worker, journal, ModelShelf(paths, library), dispatcher, pace=pace or Pace())


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
        node.monitor.close()
