"""What this node tells of itself, again and again: readings, and changes of its network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from skulkd.api.journal import Journal
from skulkd.api.lifecycle import Lifecycle
from skulkd.cluster.replica import Replica
from skulkd.cluster.telemetry import Readings, Telemetry
from skulkd.machine.collect import MachineMonitor
from skulkd.wire.events import NodeGatheredInfo
from skulkd.wire.gathered import NodeNetworkInterfaces
from skulkd.wire.ids import NodeId
from skulkd.wire.links import MeasuredLink

READINGS_INTERVAL_S = 2.0


class SelfReport:
    """What this node tells of itself: readings as telemetry, changes of its network as events."""

    def __init__(
        self,
        node_id: NodeId,
        monitor: MachineMonitor,
        replica: Replica,
        telemetry: Telemetry,
        journal: Journal,
        links: Callable[[], Sequence[MeasuredLink]] = tuple,
    ) -> None:
        self._node_id = node_id
        self._monitor = monitor
        self._replica = replica
        self._telemetry = telemetry
        self._journal = journal
        self._links = links

    async def read_once(self) -> None:
        """One look at the machine. The first also makes the node known to the state."""
        found = await self._monitor.read()
        now = datetime.now(UTC)
        known = self._replica.state.node_network.get(self._node_id)
        if known is None or (found.network is not None and known != found.network):
            interfaces = found.network.interfaces if found.network is not None else []
            info = NodeNetworkInterfaces(interfaces=interfaces)
            self._journal.append(NodeGatheredInfo(node_id=self._node_id, when=now, info=info))
        readings = Readings(
            now,
            found.memory,
            found.disk,
            found.system,
            found.identity,
            found.warnings,
            tuple(self._links()),
        )
        self._telemetry.record(self._node_id, readings)

    async def keep_reading(self, lifecycle: Lifecycle, first: asyncio.Event) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.read_once()
            lifecycle.mark_ready("readings")
            first.set()
            await asyncio.sleep(READINGS_INTERVAL_S)

    def figures(self) -> dict[str, float]:
        """The latest readings for Prometheus; what was not read is not there."""
        readings = self._telemetry.of(self._node_id)
        figures: dict[str, float] = {}
        if readings is not None and readings.memory is not None:
            figures["memory_total_bytes"] = readings.memory.ram_total.in_bytes
            figures["memory_available_bytes"] = readings.memory.ram_available.in_bytes
        if readings is not None and readings.disk is not None:
            figures["disk_total_bytes"] = readings.disk.total.in_bytes
            figures["disk_available_bytes"] = readings.disk.available.in_bytes
        return figures
