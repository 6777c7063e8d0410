"""What this node tells of itself, again and again: readings, never events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from skulkd.api.lifecycle import Lifecycle
from skulkd.cluster.telemetry import Problem, Readings, Telemetry
from skulkd.machine.collect import MachineMonitor
from skulkd.wire.ids import NodeId
from skulkd.wire.links import MeasuredLink
from skulkd.wire.machine import NodeIdentity, NodeNetworkInfo
from skulkd.wire.rdma import NodeRdma

READINGS_INTERVAL_S = 2.0


@dataclass(frozen=True, slots=True)
class Voice:
    """How a report reaches others, and what it takes from other rooms."""

    name: Callable[[], str]
    """This node's name in the cluster."""
    links: Callable[[], Sequence[MeasuredLink]] = tuple
    publish: Callable[[], None] = lambda: None
    """Called when there is something new to tell."""
    pause_s: Callable[[float], float] = lambda usual_s: usual_s
    warnings: Callable[[], Sequence[str]] = tuple
    """What other rooms of this node complain about."""
    draining: Callable[[], bool] = lambda: False
    problems: Callable[[], Sequence[Problem]] = tuple
    """What does not work on this node."""


def node_problems(down: Mapping[str, str], disk_problem: str) -> list[Problem]:
    """Of background tasks that are down, and of a disk that placements cannot be written to."""
    found = [
        Problem(
            "task_down",
            f"background task {name} is down: {reason}",
            "It is restarted by itself; see the log of this node if it does not recover.",
        )
        for name, reason in down.items()
    ]
    if disk_problem:
        text = f"placements cannot be written to disk, commands are refused: {disk_problem}"
        cure = "Free space on this node, or fix its disk; writing resumes by itself."
        found.append(Problem("state_not_written", text, cure))
    return found


class SelfReport:
    """Reads the machine and records what it found as telemetry."""

    def __init__(
        self,
        node_id: NodeId,
        monitor: MachineMonitor,
        telemetry: Telemetry,
        voice: Voice,
    ) -> None:
        self._node_id = node_id
        self._monitor = monitor
        self._telemetry = telemetry
        self._voice = voice
        self._network = NodeNetworkInfo()
        self._rdma: NodeRdma | None = None

    async def read_once(self) -> None:
        """One look at the machine. The first also makes the node known."""
        found = await self._monitor.read()
        now = datetime.now(UTC)
        # Addresses and cables that cannot be read for a while are still there.
        self._network = found.network or self._network
        self._rdma = self._rdma if found.rdma is None else found.rdma.after(self._rdma)
        readings = Readings(
            now,
            found.memory,
            found.disk,
            found.system,
            _named(found.identity, self._voice.name()),
            (*found.warnings, *self._voice.warnings()),
            tuple(self._voice.links()),
            self._network,
            self._voice.draining(),
            found.wired,
            tuple(self._voice.problems()),
            self._rdma,
            found.metal,
        )
        self._telemetry.record(self._node_id, readings)
        self._voice.publish()

    def tell_drain(self) -> None:
        """The rest has not changed; this must be known before the next look."""
        known = self._telemetry.of(self._node_id)
        if known is not None:
            draining = self._voice.draining()
            self._telemetry.record(self._node_id, replace(known, draining=draining))
            self._voice.publish()

    async def keep_reading(self, lifecycle: Lifecycle, first: asyncio.Event) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.read_once()
            lifecycle.mark_ready("readings")
            first.set()
            await asyncio.sleep(self._voice.pause_s(READINGS_INTERVAL_S))

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
