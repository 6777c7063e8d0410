"""The parts of one node, built and connected. Starts nothing; `node.py` runs and stops them.

A new part gets an attribute here, one in `Services` if handlers need it, and a line in
`Node._start_tasks` if it runs in the background.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from skulkd import __version__
from skulkd.api.auth import Policy, own_names
from skulkd.api.downloads import serve_downloads
from skulkd.api.lifecycle import Lifecycle
from skulkd.api.metrics import Metrics
from skulkd.api.node_calls import serve_calls
from skulkd.api.services import Access, Identity, Services
from skulkd.api.tls_watch import TlsCollector
from skulkd.api.token_metrics import TokenCollector
from skulkd.api.token_uses import TokenUses
from skulkd.cluster.cluster import ClusterNode
from skulkd.cluster.commands import Commands
from skulkd.cluster.journal import Journal
from skulkd.cluster.lost_nodes import LostNodes
from skulkd.cluster.metrics import ClusterCollector
from skulkd.cluster.reachability import Reachability, api_addresses
from skulkd.cluster.replica import Replica
from skulkd.cluster.self_report import ReportDeps, SelfReport, node_problems
from skulkd.cluster.setup import build_cluster, fabric_plan
from skulkd.cluster.state_view import StateView
from skulkd.cluster.telemetry import Telemetry
from skulkd.cluster.token_admin import TokenAdmin
from skulkd.cluster.tracing_switch import TracingSwitch
from skulkd.log import hide_values
from skulkd.machine.collect import MachineMonitor
from skulkd.machine.ports import PortTaken
from skulkd.machine.redact import redact_text
from skulkd.node_start import (
    EXIT_BAD_SETTINGS,
    EXIT_PORT_TAKEN,
    Start,
    StartError,
    working_directory,
)
from skulkd.observe.event_log import EventLog
from skulkd.observe.metrics import EventLogCollector
from skulkd.observe.observability import Observability, build_observability
from skulkd.observe.trace_collector import TraceCollector
from skulkd.observe.trace_files import TraceFiles
from skulkd.requests.dispatch import DispatchDeps, Dispatcher, WaitLimits
from skulkd.requests.metrics import RequestCollector
from skulkd.requests.remote_tasks import serve_tasks
from skulkd.requests.service import Requests
from skulkd.runner.protocol import TlsPaths
from skulkd.scheduling.metrics import OnDemandCollector
from skulkd.scheduling.node_facts import own_facts
from skulkd.scheduling.on_demand import OnDemandLoads
from skulkd.scheduling.placements import Placements
from skulkd.scheduling.replacement import Replacement
from skulkd.scheduling.unloads import Unloads
from skulkd.store.config import StoreConfig, load_store_config
from skulkd.store.errors import StoreError
from skulkd.store.library import ModelLibrary
from skulkd.store.local_models import LocalModels
from skulkd.store.metrics import StorageCollector
from skulkd.store.service import StoreDeps, StoreService, build_store
from skulkd.supervision import TaskSupervisor
from skulkd.swarm.catalog import loadable_cards
from skulkd.swarm.cluster_executor import ClusterExecutor
from skulkd.swarm.drain import Drain
from skulkd.swarm.metrics import LoadCollector
from skulkd.swarm.swarm import Swarm, SwarmDeps
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.events import NodeDownloadProgress
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.links import ApiAddress
from skulkd.worker.group_addresses import RankSecurity
from skulkd.worker.model_files import StagedFiles
from skulkd.worker.options import worker_options
from skulkd.worker.worker import Worker, WorkerDeps

log = logging.getLogger(__name__)


class NodeParts:
    """Built in the order in which the parts need each other. Raises StartError."""

    def __init__(self, start: Start, node_id: NodeId) -> None:
        self._start = start
        self._settings = start.settings
        self._config = start.settings.started.config
        started = start.settings.started
        self.identity = Identity(
            node_id, started.node_name, started.hostname, __version__, working_directory()
        )
        self.tasks = TaskSupervisor()
        self.replica, self.telemetry, self.events = Replica(), Telemetry(), EventLog()
        self.journal = Journal(self.events, self.replica)
        self.view = StateView(self.replica, self.telemetry)
        self.monitor = self._monitor()
        setup = self._store_setup()
        self.library = ModelLibrary(
            self._settings.sources.paths,
            self._settings.sources.environ,
            store=setup.store_root,
            staging=setup.area,
        )
        self.cluster = self._cluster()
        self.peers = self.cluster.peers
        self.commands = Commands(self.peers, self.cluster)
        self.reachability = Reachability(self.peers, self._api_addresses)
        self.store = self._store(setup)
        self.models = LocalModels(
            self._settings.sources.paths, self.library, remote_cards=self.store.inventory.cards
        )
        self.observe = self._observe()
        self.worker = self._worker()
        self.drain = Drain(self._settings.sources.paths.data / "drain.json")
        self.report = self._report()
        self.requests = self._requests()
        self.swarm = self._swarm()
        self.placements = self._placements()
        self.replacement = Replacement(self.placements, self.replica, self.journal, self._is_master)
        self.unloads = Unloads(
            self.placements,
            self.replica,
            self.journal,
            self.peers,
            self._is_master,
            self.worker.hold_if_idle,
        )
        self.loads = OnDemandLoads(
            self._config.models,
            self.placements,
            self.models,
            self.unloads,
            self.peers,
            self.cluster.master,
        )
        self.token_uses = TokenUses(lambda: self.cluster.core.tokens)
        self._connect()

    def _connect(self) -> None:
        self.journal.on_change(self.store.notify)
        self.journal.on_change(self.worker.notify)
        self.journal.on_change(self.token_uses.end_revoked)
        self.drain.on_change(self.report.publish_now)
        self.store.staging.on_stall = self.report.publish_now
        self.requests.dispatcher.avoid(self.swarm.draining_nodes)
        self.requests.dispatcher.load_with(self.loads)

    def _is_master(self) -> bool:
        return self.cluster.master_status().master_node_id == self.identity.node_id

    def _monitor(self) -> MachineMonitor:
        return MachineMonitor(
            name=self._settings.started.node_name,
            models_dir=self._settings.sources.paths.models,
            version=__version__,
            platform=self._start.platform,
        )

    def _cluster(self) -> ClusterNode:
        secret, api_host = self._start.secret.value, self._start.address.host
        try:
            plan = fabric_plan(self._settings, secret, api_host, self.identity.node_id)
        except PortTaken as error:
            raise StartError(EXIT_PORT_TAKEN, str(error).splitlines()) from error
        return build_cluster(
            plan,
            self._settings,
            __version__,
            self.journal,
            self.telemetry,
            lambda instance: self.replacement.plan(instance),  # noqa: PLW0108 - built later
            self._renamed,
        )

    def _renamed(self, name: str) -> None:
        log.warning("the name %s is taken; this node is called %s", self.identity.name, name)
        self.identity.name = name

    def _api_addresses(self) -> list[ApiAddress]:
        listening = [sock.getsockname()[:2] for sock in self._start.sockets]
        readings = self.telemetry.of(self.identity.node_id)
        network = readings.network if readings else None
        return api_addresses(listening, network, tls=self._start.tls.api is not None)

    def _store_setup(self) -> StoreConfig:
        started, sources = self._settings.started, self._settings.sources
        try:
            return load_store_config(
                started.config,
                sources.paths,
                sources.environ,
                node_id=self.identity.node_id,
                name=started.node_name,
                hostname=started.hostname,
            )
        except StoreError as error:
            hints = [f"hint: {error.hint}"] if error.hint else []
            raise StartError(EXIT_BAD_SETTINGS, [error.message, *hints]) from error

    def _store(self, setup: StoreConfig) -> StoreService:
        sources = self._settings.sources

        def publish(progress: DownloadProgress) -> None:
            self.journal.append(NodeDownloadProgress(download_progress=progress))

        def measured() -> Mapping[NodeId, Sequence[str]]:
            hosts: dict[NodeId, list[str]] = {}
            for link in self.reachability.links():
                hosts.setdefault(link.sink, []).append(link.host)
            return hosts

        deps = StoreDeps(
            node_id=self.identity.node_id,
            state=lambda: self.replica.state,
            view=self.view.current,
            publish=publish,
            running=lambda: self.worker.cards(),  # noqa: PLW0108 - built later
            measured=measured,
            event_log=sources.paths.event_log,
            logs=sources.paths.log_file.parent,
            environ=sources.environ,
            secret=self._start.secret.value,
            secret_for_operators=self._config.api.secret_for_operators,
            hf_token=self._config.hf_token,
            tls=self._start.tls.store,
        )
        return build_store(setup, self.library, deps)

    def _observe(self) -> Observability:
        paths, state = self._settings.sources.paths, lambda: self.replica.state
        return build_observability(
            paths,
            self._config,
            self.events,
            hide_values(redact_text, [self._start.secret.value, self._config.hf_token or ""]),
            TraceCollector(TraceFiles(paths.traces), self.peers, state),
            self._settings.started.hostname,
        )

    def _worker(self) -> Worker:
        sources = self._settings.sources
        deps = WorkerDeps(
            self.library,
            sources.paths.log_file.parent,
            self.peers,
            _rank_security(self._start, self.cluster),
            StagedFiles(self.store.staging),
            environ=sources.environ,
            on_trace=self.observe.traces.collect,
            unplaced=lambda: tuple(self.cluster.core.journal.unplaced),
            topology=lambda: self.view.current().topology,
        )
        return Worker(
            node_id=self.identity.node_id,
            state=lambda: self.replica.state,
            publish=self.journal.append,
            deps=deps,
            options=worker_options(self._config.runtime),
        )

    def _report(self) -> SelfReport:
        deps = ReportDeps(
            lambda: self.identity.name,
            self.reachability.links,
            self.cluster.publish_readings,
            self.cluster.readings_pause_s,
            self.observe.warnings,
            lambda: self.drain.draining,
            lambda: node_problems(self.tasks.down(), self.cluster.disk_problem),
            self.store.staging.stalled,
        )
        return SelfReport(self.identity.node_id, self.monitor, self.telemetry, deps)

    def _requests(self) -> Requests:
        journal = self.cluster.core.journal
        dispatcher = Dispatcher(
            self.peers,
            lambda: self.replica.state,
            self.journal,
            self.worker,
            WaitLimits(max_waiting=self._config.runtime.queue),
            DispatchDeps(
                unplaced=lambda: [placement.instance for placement in journal.unplaced.values()],
                has_master=lambda: self.cluster.master() is not None,
                node_name=lambda node: journal.names.get(node, str(node)),
                stalled=self._stalled,
                prefix_routing=self._config.runtime.prefix_routing,
            ),
        )
        return Requests(dispatcher)

    def _stalled(self, node: NodeId) -> Mapping[ModelId, str]:
        readings = self.telemetry.of(node)
        return {} if readings is None else readings.stalled

    def _swarm(self) -> Swarm:
        deps = SwarmDeps(
            name=lambda: self.identity.name,
            version=__version__,
            settings=self._settings,
            peers=self.peers,
            replica=self.replica,
            telemetry=self.telemetry,
            journal=self.journal,
            executor=ClusterExecutor(self.requests, lambda: loadable_cards(self.replica.state)),
        )
        return Swarm(deps, self.drain)

    def _placements(self) -> Placements:
        return Placements(
            self.view,
            self.replica,
            self.journal,
            self.peers,
            self.commands,
            own_facts(self.models, self._settings),
            self.swarm.draining_nodes,
        )

    def services(self, lifecycle: Lifecycle) -> Services:
        """What the handlers of the API may use; from now on other nodes may ask, too."""
        core, uses = self.cluster.core, self.token_uses
        services = Services(
            identity=self.identity,
            access=Access(self._policy()),
            settings=self._settings,
            monitor=self.monitor,
            replica=self.replica,
            telemetry=self.telemetry,
            state=self.view,
            events=self.events,
            lifecycle=lifecycle,
            metrics=self._metrics(),
            journal=self.journal,
            models=self.models,
            worker=self.worker,
            requests=self.requests,
            placements=self.placements,
            unloads=self.unloads,
            tracing=TracingSwitch(self.replica, self.commands),
            tokens=TokenAdmin(lambda: core.tokens, self.commands, self.peers, uses.last_used),
            token_uses=uses,
            lost_nodes=LostNodes(core, self.commands),
            peers=self.peers,
            store=self.store,
            master_status=self.cluster.master_status,
            swarm=self.swarm,
            observe=self.observe,
            tls=self._start.tls.watch,
            api_addresses=self.reachability.own_addresses,
        )
        serve_calls(services)
        serve_tasks(self.peers, self.worker)
        serve_downloads(self.peers, self.store)
        return services

    def _metrics(self) -> Metrics:
        metrics = Metrics(__version__, self.report.figures)
        slots = self._config.runtime.max_concurrent_requests
        for collector in (
            RequestCollector(self.requests, self.worker, slots),
            ClusterCollector(self.cluster),
            StorageCollector(self.identity.node_id, self.store.evictor, self.view.current),
            EventLogCollector(self.observe),
            LoadCollector(self.swarm),
            OnDemandCollector(self.loads, self.unloads),
            TlsCollector(self._start.tls.watch),
            TokenCollector(self.token_uses),
        ):
            metrics.registry.register(collector)
        return metrics

    def _policy(self) -> Policy:
        started, api = self._settings.started, self._config.api
        given = [] if api.tls is None else list(api.tls.names)
        return Policy(
            secret=self._start.secret.value,
            own_names=own_names(started.hostname, started.node_name, *given),
            token_on_loopback=api.token_on_loopback,
            cors_origins=frozenset(api.cors_origins),
            secret_for_operators=api.secret_for_operators,
            tokens=lambda: self.cluster.core.tokens,
        )


def _rank_security(start: Start, cluster: ClusterNode) -> RankSecurity:
    files = cluster.fabric.plan.tls
    if files is None:
        return RankSecurity(start.secret.value)
    names = (files.certificate, files.key, files.authority)
    certificate, key, authority = (str(name.absolute()) for name in names)
    tls = TlsPaths(certificate=certificate, key=key, authority=authority)
    return RankSecurity(start.secret.value, tls)
