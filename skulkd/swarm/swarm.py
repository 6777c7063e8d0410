"""Load, drain and the gateway node of one daemon."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from skulkd.cluster.journal import Journal
from skulkd.cluster.replica import Replica
from skulkd.cluster.telemetry import Telemetry
from skulkd.peers import Peers
from skulkd.settings.running import RunningSettings
from skulkd.swarm.active_jobs import GatewayDeps
from skulkd.swarm.capabilities import MachineProbe, probe_machine, snapshot, unsigned_payload
from skulkd.swarm.catalog import (
    Agent,
    Exposure,
    catalog_entry,
    catalog_fingerprint,
    cluster_agents,
    loadable_cards,
)
from skulkd.swarm.claims import Claims
from skulkd.swarm.drain import Drain
from skulkd.swarm.job_records import JobRecords
from skulkd.swarm.job_runner import Executor
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.node_files import NodeFiles
from skulkd.swarm.node_load import LoadFacts, LoadMeter, Slots, node_load
from skulkd.swarm.service import SwarmService
from skulkd.swarm.telemetry import Clocks, Counters, Machine, hardware_pressure
from skulkd.wire.ids import NodeId
from skulkd.wire.load import NodeLoad, OpenWork


@dataclass(frozen=True, slots=True)
class SwarmDeps:
    """The parts of the node that the swarm uses."""

    name: Callable[[], str]
    """In the cluster; changes when another node has it already."""
    version: str
    settings: RunningSettings
    peers: Peers
    replica: Replica
    telemetry: Telemetry
    journal: Journal
    executor: Executor


class Swarm:
    """The load of this node, its drain, and its gateway node."""

    def __init__(self, deps: SwarmDeps, drain: Drain) -> None:
        self._deps = deps
        self.drain = drain
        clocks = Clocks(time.monotonic, lambda: datetime.now(UTC))
        self._counters = Counters(clocks.wall)
        self.meter = LoadMeter(
            deps.peers.node_id, lambda: deps.replica.state, self._counters, clocks.monotonic
        )
        deps.journal.on_change(self.meter.notify)
        sources = deps.settings.sources
        files = NodeFiles.find(sources.paths.data / "swarm", sources.environ)
        records = JobRecords(files.jobs_dir)
        self._gateway_counters = Counters(clocks.wall)
        gateway_deps = GatewayDeps(
            version=deps.version,
            hostname=deps.settings.started.node_name,
            environ=sources.environ,
            agents=self._agents,
            executor=deps.executor,
            draining=lambda: drain.draining,
            probe=self._probe,
            machine=self._machine,
            records=records,
            claims=Claims(deps.peers, records),
            counters=self._gateway_counters,
            clocks=clocks,
            generic_runners=self._generic_runners(),
        )
        self.service = SwarmService(files, gateway_deps)
        drain.on_change(self.service.notify)

    def load(self) -> NodeLoad:
        """How much work this node has and can take."""
        deps, counters = self._deps, self._counters
        state = deps.replica.state
        counters.active_generic = self._gateway_counters.active_generic
        counters.queued_generic = self._gateway_counters.queued_generic
        config = self.service.config()
        generic = config.generic_slots if config and config.generic_jobs_enabled else 0
        slots = Slots(deps.settings.started.config.runtime.max_concurrent_requests, generic)
        entries = [catalog_entry(agent, Exposure()) for agent in self._agents()]
        facts = LoadFacts(
            name=deps.name(),
            draining_since=self.drain.since,
            fingerprint=catalog_fingerprint(entries),
            work=[*self.meter.work(), *self._gateway_jobs()],
            hardware=self._pressure(config)
            if config and config.hardware_telemetry_enabled
            else None,
        )
        return node_load(state, deps.peers.node_id, slots, counters, facts)

    def draining_nodes(self) -> frozenset[NodeId]:
        """Nodes of the cluster that accept no new work, as far as this one knows."""
        own_id = self._deps.peers.node_id
        readings = self._deps.telemetry.all()
        others = {node for node, reading in readings.items() if reading.draining} - {own_id}
        return frozenset(others | {own_id} if self.drain.draining else others)

    def _agents(self) -> list[Agent]:
        state = self._deps.replica.state
        on_demand = self._deps.settings.started.config.models.on_demand
        return cluster_agents(state, loadable_cards(state) if on_demand else ())

    def _gateway_jobs(self) -> list[OpenWork]:
        return [
            OpenWork(kind="gateway_job", id=job_id, model=model, status="Running")
            for job_id, model in self.service.running().items()
        ]

    def _pressure(self, config: NodeConfig) -> dict[str, object]:
        now = datetime.now(UTC)
        facts = snapshot(config.node_id, self._probe(config), now)
        return hardware_pressure(self._machine(), unsigned_payload(facts, []), now)

    def _generic_runners(self) -> frozenset[str]:
        return frozenset(self._deps.settings.started.config.swarm.generic_runners)

    def _probe(self, config: NodeConfig) -> MachineProbe:
        readings = self._deps.telemetry.of(self._deps.peers.node_id)
        system = None if readings is None else readings.system
        memory = None if readings is None else readings.memory
        return probe_machine(config, self._generic_runners(), system, memory)

    def _machine(self) -> Machine:
        readings = self._deps.telemetry.of(self._deps.peers.node_id)
        memory = None if readings is None else readings.memory
        return Machine(
            cores=os.cpu_count() or 1,
            load_1m=os.getloadavg()[0],
            ram_total_bytes=0 if memory is None else memory.ram_total.in_bytes,
            ram_free_bytes=0 if memory is None else memory.ram_available.in_bytes,
        )
