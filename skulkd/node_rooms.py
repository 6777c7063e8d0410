"""The rooms of one node, built and connected. Starts nothing; `node.py` runs and stops them.

A room that is added gets one field here, one in `Services` if handlers need it, and a line
where `node.py` starts background work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skulkd import __version__
from skulkd.api.auth import Policy, own_names
from skulkd.api.cluster_metrics import ClusterCollector
from skulkd.api.dispatch import Dispatcher, Outlook, Patience
from skulkd.api.downloads import serve_downloads
from skulkd.api.for_peers import serve_peers
from skulkd.api.inference import Inference
from skulkd.api.inference_metrics import InferenceCollector
from skulkd.api.journal import Journal
from skulkd.api.lifecycle import Lifecycle
from skulkd.api.load_metrics import LoadCollector
from skulkd.api.lost_nodes import LostNodes
from skulkd.api.mending import Mending
from skulkd.api.metrics import Metrics
from skulkd.api.model_shelf import ModelShelf
from skulkd.api.node_news import teller
from skulkd.api.observe_metrics import EventLogCollector
from skulkd.api.observing import Observing
from skulkd.api.placing import Placements
from skulkd.api.reach import Reach, api_addresses
from skulkd.api.replanning import Replanning
from skulkd.api.running_settings import RunningSettings
from skulkd.api.services import Access, Identity, Services
from skulkd.api.storage import serve_storage
from skulkd.api.storage_metrics import StorageCollector
from skulkd.api.swarm_jobs import ClusterExecutor
from skulkd.api.swarm_room import Base, SwarmRoom
from skulkd.api.tls_watch import TlsCollector, TlsWatch
from skulkd.api.token_admin import Tokens
from skulkd.api.token_metrics import TokenCollector
from skulkd.api.tracing_switch import TracingSwitch
from skulkd.cluster.cluster import Cluster
from skulkd.cluster.replica import Replica
from skulkd.cluster.state_view import StateView
from skulkd.cluster.telemetry import Telemetry
from skulkd.cluster.tokens import TokenTable
from skulkd.machine.collect import MachineMonitor
from skulkd.node_cluster import build_cluster
from skulkd.node_observe import build_observe
from skulkd.node_orders import have_the_master_decide
from skulkd.node_report import SelfReport, Voice, node_problems
from skulkd.node_start import Start, working_directory
from skulkd.node_store import build_store_room, decide_setup
from skulkd.observe.event_log import EventLog
from skulkd.peers import Peers
from skulkd.runner.protocol import TlsPaths
from skulkd.store.library import ModelLibrary
from skulkd.store.room import StoreRoom
from skulkd.supervision import TaskSupervisor
from skulkd.swarm.drain import Drain
from skulkd.wire.ids import NodeId
from skulkd.wire.links import ApiAddress
from skulkd.worker.around import Around
from skulkd.worker.from_settings import worker_options
from skulkd.worker.group_keys import RankSecurity
from skulkd.worker.staged_files import StagedFiles
from skulkd.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Rooms:
    """The parts of a node that live as long as it does."""

    settings: RunningSettings
    identity: Identity
    policy: Policy
    cluster: Cluster
    replanning: Replanning
    peers: Peers
    reach: Reach
    replica: Replica
    telemetry: Telemetry
    events: EventLog
    journal: Journal
    monitor: MachineMonitor
    report: SelfReport
    library: ModelLibrary
    worker: Worker
    drain: Drain
    view: StateView
    store: StoreRoom
    observe: Observing
    tasks: TaskSupervisor
    tls: TlsWatch


def build_rooms(start: Start, node_id: NodeId) -> Rooms:
    """All rooms, in the order in which they need each other."""
    settings = start.settings
    started, sources = settings.started, settings.sources
    name = started.node_name
    replica, telemetry, events = Replica(), Telemetry(), EventLog()
    journal = Journal(events, replica)
    monitor = _monitor(start)
    setup = decide_setup(start, node_id)
    library = ModelLibrary(
        sources.paths, sources.environ, store=setup.store_root, staging=setup.area
    )
    identity = Identity(node_id, name, started.hostname, __version__, working_directory())
    replanning = Replanning()
    cluster = build_cluster(start, identity, journal, telemetry, replanning)
    peers = cluster.peers
    reach = _reach(start, peers, telemetry)
    view = StateView(replica, telemetry)
    store = build_store_room(
        start, setup, library, journal, reach, node_id,
        (lambda: replica.state, view.current),
        lambda: worker.cards(),  # noqa: PLW0108 - the worker comes after its files
    )  # fmt: skip
    observe = build_observe(start, events, peers, lambda: replica.state)
    around = Around(
        library, sources.paths.log_file.parent, peers, _rank_security(start, cluster),
        StagedFiles(store.staging),
        environ=sources.environ, on_trace=observe.traces.took,
        homeless=lambda: tuple(cluster.core.ledger.waiting),
        topology=lambda: view.current().topology,
    )  # fmt: skip
    worker = _worker(start, node_id, journal, replica, around)
    journal.on_change(worker.notify)
    drain = Drain(sources.paths.data / "drain.json")
    tasks = TaskSupervisor()
    return Rooms(
        settings=settings,
        identity=identity,
        policy=_policy(start, name, lambda: cluster.core.tokens),
        cluster=cluster,
        replanning=replanning,
        peers=peers,
        reach=reach,
        replica=replica,
        telemetry=telemetry,
        events=events,
        journal=journal,
        monitor=monitor,
        report=_report(identity, monitor, telemetry, (reach, cluster, observe, drain, tasks)),
        library=library,
        worker=worker,
        drain=drain,
        view=view,
        store=store,
        observe=observe,
        tasks=tasks,
        tls=start.tls.watch,
    )


def _monitor(start: Start) -> MachineMonitor:
    settings = start.settings
    return MachineMonitor(
        name=settings.started.node_name,
        models_dir=settings.sources.paths.models,
        version=__version__,
        platform=start.platform,
    )


def _rank_security(start: Start, cluster: Cluster) -> RankSecurity:
    files = cluster.fabric.plan.tls
    if files is None:
        return RankSecurity(start.secret.value)
    names = (files.certificate, files.key, files.authority)
    certificate, key, authority = (str(name.absolute()) for name in names)
    tls = TlsPaths(certificate=certificate, key=key, authority=authority)
    return RankSecurity(start.secret.value, tls)


def _worker(
    start: Start, node_id: NodeId, journal: Journal, replica: Replica, around: Around
) -> Worker:
    return Worker(
        node_id=node_id,
        state=lambda: replica.state,
        publish=journal.append,
        around=around,
        options=worker_options(start.settings.started.config.runtime),
    )


def _report(
    identity: Identity,
    monitor: MachineMonitor,
    telemetry: Telemetry,
    around: tuple[Reach, Cluster, Observing, Drain, TaskSupervisor],
) -> SelfReport:
    reach, cluster, observe, drain, tasks = around
    voice = Voice(
        lambda: identity.name,
        reach.links,
        cluster.publish_readings,
        cluster.readings_pause_s,
        observe.warnings,
        lambda: drain.draining,
        lambda: node_problems(tasks.down(), cluster.disk_problem),
    )
    report = SelfReport(identity.node_id, monitor, telemetry, voice)
    drain.on_change(report.tell_drain)
    return report


def build_services(rooms: Rooms, lifecycle: Lifecycle) -> Services:
    """What the handlers of the API may use."""
    metrics = Metrics(__version__, rooms.report.figures)
    inference = _inference(rooms)
    places = rooms.settings.started.config.runtime.max_concurrent_requests
    metrics.registry.register(InferenceCollector(inference, places))
    metrics.registry.register(ClusterCollector(rooms.cluster))
    metrics.registry.register(
        StorageCollector(rooms.identity.node_id, rooms.store.caretaker, rooms.view.current)
    )
    metrics.registry.register(EventLogCollector(rooms.observe))
    metrics.registry.register(TlsCollector(rooms.tls))
    tell = teller(inference.models, rooms.settings)
    swarm = _swarm(rooms, inference)
    metrics.registry.register(LoadCollector(swarm))
    inference.dispatcher.avoid(swarm.draining_nodes)
    placements = Placements(
        rooms.view, rooms.replica, rooms.journal, rooms.peers, tell, swarm.draining_nodes
    )
    tracing = TracingSwitch(rooms.replica, rooms.journal)
    commands = have_the_master_decide(rooms.peers, rooms.cluster, placements, tracing)
    rooms.replanning.placements = placements
    tokens = Tokens(lambda: rooms.cluster.core.tokens, commands.send, rooms.peers)
    rooms.journal.on_change(tokens.uses.end_revoked)
    metrics.registry.register(TokenCollector(tokens.uses))
    services = Services(
        identity=rooms.identity,
        access=Access(rooms.policy),
        settings=rooms.settings,
        monitor=rooms.monitor,
        replica=rooms.replica,
        telemetry=rooms.telemetry,
        state=rooms.view,
        events=rooms.events,
        lifecycle=lifecycle,
        metrics=metrics,
        inference=inference,
        placements=placements,
        tracing=tracing,
        tokens=tokens,
        peers=rooms.peers,
        store=rooms.store,
        reign=rooms.cluster.reign,
        swarm=swarm,
        observe=rooms.observe,
        lost_nodes=LostNodes(rooms.cluster.core.missing_members, commands.send),
        tls=rooms.tls,
        api_addresses=rooms.reach.own_addresses,
    )
    serve_peers(services)
    serve_storage(rooms.peers, rooms.store.caretaker)
    serve_downloads(rooms.peers, rooms.store)
    Mending(placements, rooms.replica, services.reign, rooms.identity.node_id).watch(rooms.journal)
    return services


def _reach(start: Start, peers: Peers, telemetry: Telemetry) -> Reach:
    listening = [sock.getsockname()[:2] for sock in start.sockets]

    def own() -> list[ApiAddress]:
        readings = telemetry.of(peers.node_id)
        network = readings.network if readings else None
        return api_addresses(listening, network, tls=start.tls.api is not None)

    return Reach(peers, own)


def _inference(rooms: Rooms) -> Inference:
    settings = rooms.settings
    patience = Patience(waiting_limit=settings.started.config.runtime.queue)
    dispatcher = Dispatcher(
        rooms.peers,
        lambda: rooms.replica.state,
        rooms.journal,
        rooms.worker,
        patience,
        Outlook(
            homeless=lambda: [one.instance for one in rooms.cluster.core.ledger.waiting.values()],
            settled=lambda: rooms.cluster.master() is not None,
            name=lambda node: rooms.cluster.core.ledger.names.get(node, str(node)),
        ),
    )
    models = ModelShelf(
        settings.sources.paths, rooms.library, elsewhere=rooms.store.announcer.cards
    )
    return Inference(rooms.worker, rooms.journal, models, dispatcher)


def _swarm(rooms: Rooms, inference: Inference) -> SwarmRoom:
    base = Base(
        name=lambda: rooms.identity.name,
        version=__version__,
        settings=rooms.settings,
        peers=rooms.peers,
        replica=rooms.replica,
        telemetry=rooms.telemetry,
        journal=rooms.journal,
        executor=ClusterExecutor(inference),
    )
    return SwarmRoom(base, rooms.drain)


def _policy(start: Start, name: str, tokens: Callable[[], TokenTable]) -> Policy:
    started = start.settings.started
    return Policy(
        secret=start.secret.value,
        own_names=own_names(started.hostname, name, *_given_names(start)),
        token_on_loopback=started.config.api.token_on_loopback,
        cors_origins=frozenset(started.config.api.cors_origins),
        secret_for_operators=started.config.api.secret_for_operators,
        tokens=tokens,
    )


def _given_names(start: Start) -> list[str]:
    tls = start.settings.started.config.api.tls
    return [] if tls is None else list(tls.names)
