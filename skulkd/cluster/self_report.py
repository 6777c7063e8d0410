"""Reads this machine at intervals and publishes the readings as telemetry; never events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from skulkd.cluster.telemetry import NodeProblem, NodeReadings, Telemetry
from skulkd.machine.collect import MachineMonitor
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.links import MeasuredLink
from skulkd.wire.machine import NodeIdentity, NodeNetworkInfo
from skulkd.wire.rdma import NodeRdma

READINGS_INTERVAL_S = 2.0


@dataclass(frozen=True, slots=True)
class ReportDeps:
    """What a report contains besides readings of the machine, and how it is published."""

    name: Callable[[], str]
    """This node's name in the cluster."""
    links: Callable[[], Sequence[MeasuredLink]] = tuple
    publish: Callable[[], None] = lambda: None
    """Send the readings to the other nodes."""
    pause_s: Callable[[float], float] = lambda usual_s: usual_s
    warnings: Callable[[], Sequence[str]] = tuple
    """Warnings of other rooms of this node."""
    draining: Callable[[], bool] = lambda: False
    problems: Callable[[], Sequence[NodeProblem]] = tuple
    """What does not work on this node."""
    stalled: Callable[[], Mapping[ModelId, str]] = dict
    """Models whose files do not come, and why."""


def node_problems(down: Mapping[str, str], disk_problem: str) -> list[NodeProblem]:
    """Of background tasks that are down, and of a disk that placements cannot be written to."""
    found = [
        NodeProblem(
            "task_down",
            f"background task {name} is down: {reason}",
            "It is restarted by itself; see the log of this node if it does not recover.",
        )
        for name, reason in down.items()
    ]
    if disk_problem:
        text = f"placements cannot be written to disk, commands are refused: {disk_problem}"
        cure = "Free space on this node, or fix its disk; writing resumes by itself."
        found.append(NodeProblem("state_not_written", text, cure))
    return found


class SelfReport:
    """Reads the machine and records what it found as telemetry."""

    def __init__(
        self,
        node_id: NodeId,
        monitor: MachineMonitor,
        telemetry: Telemetry,
        deps: ReportDeps,
    ) -> None:
        self._node_id = node_id
        self._monitor = monitor
        self._telemetry = telemetry
        self._deps = deps
        self._network = NodeNetworkInfo()
        self._rdma: NodeRdma | None = None

    async def read_once(self) -> None:
        """Read the machine once and publish it. The first time also makes the node known."""
        found = await self._monitor.read()
        now = datetime.now(UTC)
        # Addresses and cables that cannot be read for a while are still there.
        self._network = found.network or self._network
        self._rdma = self._rdma if found.rdma is None else found.rdma.after(self._rdma)
        readings = NodeReadings(
            now,
            found.memory,
            found.disk,
            found.system,
            _named(found.identity, self._deps.name()),
            (*found.warnings, *self._deps.warnings()),
            tuple(self._deps.links()),
            self._network,
            self._deps.draining(),
            found.wired,
            tuple(self._deps.problems()),
            self._rdma,
            found.metal,
            dict(self._deps.stalled()),
        )
        self._telemetry.record(self._node_id, readings)
        self._deps.publish()

    def publish_now(self) -> None:
        """Publish a changed drain or a stalled copy at once, before the next readings."""
        known = self._telemetry.of(self._node_id)
        if known is not None:
            draining, stalled = self._deps.draining(), dict(self._deps.stalled())
            changed = replace(known, draining=draining, stalled=stalled)
            self._telemetry.record(self._node_id, changed)
            self._deps.publish()

    async def run(self, on_read: Callable[[], None]) -> None:
        """Read at intervals until cancelled."""
        while True:
            await self.read_once()
            on_read()
            await asyncio.sleep(self._deps.pause_s(READINGS_INTERVAL_S))

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


def _named(identity: NodeIdentity | None, name: str) -> NodeIdentity | None:
    """The identity under the name that is unique in the cluster."""
    return None if identity is None else identity.model_copy(update={"friendly_name": name})
