"""The latest readings of every node. Last write wins; readings are never events."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from skulkd.cluster.codec import UnreadableMessage, dump, load_as
from skulkd.wire.base import Memory
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.links import MeasuredLink
from skulkd.wire.machine import (
    DiskUsage,
    MemoryUsage,
    MetalLimits,
    NodeIdentity,
    NodeNetworkInfo,
    SystemPerformanceProfile,
)
from skulkd.wire.rdma import NodeRdma

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """Something that does not work on a node; the code is one of `HealthCode`."""

    code: str
    message: str
    remediation: str


@dataclass(frozen=True, slots=True)
class NodeReadings:
    """What one node last said of itself; None where it has said nothing."""

    seen: datetime
    memory: MemoryUsage | None = None
    disk: DiskUsage | None = None
    system: SystemPerformanceProfile | None = None
    identity: NodeIdentity | None = None
    warnings: tuple[str, ...] = ()
    links: tuple[MeasuredLink, ...] = ()
    network: NodeNetworkInfo | None = None
    draining: bool = False
    """It takes no new placements and, where it can be avoided, no new requests."""
    wired: Memory | None = None
    problems: tuple[NodeProblem, ...] = ()
    rdma: NodeRdma | None = None
    metal: MetalLimits | None = None
    """None on everything but a Mac."""
    stalled: dict[ModelId, str] = field(default_factory=dict)
    """Models whose files it waits for while the store does not answer, and why."""


def dump_readings(readings: NodeReadings) -> bytes:
    """As they travel to other nodes."""
    return dump(readings)


class Telemetry:
    """Readings by node, with a version that changes whenever they do."""

    def __init__(self) -> None:
        self._by_node: dict[NodeId, NodeReadings] = {}
        # Of other nodes; most of it is replaced before anybody looks, so it is read when needed.
        self._unread: dict[NodeId, tuple[datetime, bytes]] = {}
        self.version = 0

    def record(self, node_id: NodeId, readings: NodeReadings) -> None:
        """Take over what a node says now; what it does not say any more is not kept."""
        self._by_node[node_id] = readings
        self._unread.pop(node_id, None)
        self.version += 1

    def record_raw(self, node_id: NodeId, body: bytes) -> None:
        """What another node sent. Its time is that of its arrival: clocks are not compared."""
        self._unread[node_id] = (datetime.now(UTC), body)
        self.version += 1

    def forget(self, node_id: NodeId) -> None:
        """A node has gone."""
        unread = self._unread.pop(node_id, None)
        if self._by_node.pop(node_id, None) is not None or unread is not None:
            self.version += 1

    def of(self, node_id: NodeId) -> NodeReadings | None:
        self._read(node_id)
        return self._by_node.get(node_id)

    def all(self) -> dict[NodeId, NodeReadings]:
        for node_id in list(self._unread):
            self._read(node_id)
        return dict(self._by_node)

    def _read(self, node_id: NodeId) -> None:
        seen, body = self._unread.pop(node_id, (None, b""))
        if seen is None:
            return
        try:
            readings: NodeReadings = load_as(NodeReadings, body)
        except UnreadableMessage as error:
            log.debug("the readings of %s are of another shape: %s", node_id, error)
            return
        self._by_node[node_id] = replace(readings, seen=seen)
