"""Load, drain and the gateway node of one daemon, put together for handlers and for the root."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from skulkd.api.journal import Journal
from skulkd.api.running_settings import RunningSettings
from skulkd.cluster.replica import Replica
from skulkd.cluster.telemetry import Telemetry
from skulkd.peers import Peers
from skulkd.swarm.capabilities import Probed, snapshot, unsigned_payload
from skulkd.swarm.catalog import Exposure, catalog_entry, catalog_fingerprint
from skulkd.swarm.claims import Claims
from skulkd.swarm.cluster_models import cluster_agents, probe_machine
from skulkd.swarm.drain import Drain
from skulkd.swarm.jobs import Clocks, Executor
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.node_files import NodeFiles
from skulkd.swarm.node_load import LoadMeter, Places, Said, node_load
from skulkd.swarm.service import Host, SwarmService
from skulkd.swarm.telemetry import Counters, Machine, hardware_pressure
from skulkd.wire.ids import NodeId
from skulkd.wire.load import NodeLoad, OpenWork


@dataclass(frozen=True, slots=True)
class Base:
    """The parts of the node that this room stands on."""

    name: Callable[[], str]
    """In the cluster; changes when another node has it already."""
    version: str
    settings: RunningSettings
    peers: Peers
    replica: Replica
    telemetry: Telemetry
    journal: Journal
    executor: Executor


class SwarmRoom:
    """One per daemon."""

    def __init__(self, base: Base, drain: Drain) -> None:
        self._base = base
        self.drain = drain
        clocks = Clocks(time.monotonic, lambda: datetime.now(UTC))
        self._counters = Counters(clocks.wall)
        self.meter = LoadMeter(
            base.peers.node_id, lambda: base.replica.state, self._counters, clocks.monotonic
        )
        base.journal.on_change(self.meter.notify)
        sources = base.settings.sources
        files = NodeFiles.find(sources.paths.data / "swarm", sources.environ)
        host = Host(
            version=base.version,
            hostname=base.settings.started.node_name,
            environ=sources.environ,
            agents=lambda: cluster_agents(base.replica.state),
            executor=base.executor,
            draining=lambda: drain.draining,
            probed=self._probed,
            machine=self._machine,
            clocks=clocks,
            generic_runners=frozenset(base.settings.started.config.swarm.generic_runners),
        )
        self.service = SwarmService(
            files,
            host,
            lambda book: Claims(base.peers, lambda job_id: not book.may_run(job_id)),
        )
        drain.on_change(self.service.notify)

    def load(self) -> NodeLoad:
        """How much work this node has, and can take."""
        base, counters = self._base, self._counters
        state = base.replica.state
        gateway = self.service.counters
        counters.active_generic = gateway.active_generic
        counters.queued_generic = gateway.queued_generic
        config = self.service.config()
        generic = config.limits(draining=False).generic if config and config.generic_enabled else 0
        places = Places(base.settings.started.config.runtime.max_concurrent_requests, generic)
        entries = [catalog_entry(agent, Exposure()) for agent in cluster_agents(state)]
        said = Said(
            name=base.name(),
            draining_since=self.drain.since,
            fingerprint=catalog_fingerprint(entry for entry in entries if entry is not None),
            work=[*self.meter.work(), *self._gateway_jobs()],
            hardware=self._pressure(config) if config and config.hardware else None,
        )
        return node_load(state, base.peers.node_id, places, counters, said)

    def draining_nodes(self) -> frozenset[NodeId]:
        """Every node of the cluster that takes no new work, as far as this one has heard."""
        heard = {node for node, said in self._base.telemetry.all().items() if said.draining}
        own = {self._base.peers.node_id} if self.drain.draining else set[NodeId]()
        return frozenset((heard - {self._base.peers.node_id}) | own)

    def _gateway_jobs(self) -> list[OpenWork]:
        return [
            OpenWork(kind="gateway_job", id=job_id, model=model, status="Running")
            for job_id, model in self.service.running().items()
        ]

    def _pressure(self, config: NodeConfig) -> dict[str, object]:
        now = datetime.now(UTC)
        facts = snapshot(config.node_id, self._probed(config), now)
        return hardware_pressure(self._machine(), unsigned_payload(facts, []), now)

    def _probed(self, config: NodeConfig) -> Probed:
        readings = self._base.telemetry.of(self._base.peers.node_id)
        kinds = frozenset(self._base.settings.started.config.swarm.generic_runners)
        system = None if readings is None else readings.system
        memory = None if readings is None else readings.memory
        return probe_machine(config, kinds, system, memory)

    def _machine(self) -> Machine:
        readings = self._base.telemetry.of(self._base.peers.node_id)
        memory = None if readings is None else readings.memory
        return Machine(
            cores=os.cpu_count() or 1,
            load_1m=os.getloadavg()[0],
            ram_total_bytes=0 if memory is None else memory.ram_total.in_bytes,
            ram_free_bytes=0 if memory is None else memory.ram_available.in_bytes,
        )
