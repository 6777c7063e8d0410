"""The latest readings of every node. Last write wins; readings are never events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from skulkd.wire.ids import NodeId
from skulkd.wire.links import MeasuredLink
from skulkd.wire.machine import DiskUsage, MemoryUsage, NodeIdentity, SystemPerformanceProfile


@dataclass(frozen=True, slots=True)
class Readings:
    """What one node last said of itself; None where it has said nothing."""

    seen: datetime
    memory: MemoryUsage | None = None
    disk: DiskUsage | None = None
    system: SystemPerformanceProfile | None = None
    identity: NodeIdentity | None = None
    warnings: tuple[str, ...] = ()
    links: tuple[MeasuredLink, ...] = ()


class Telemetry:
    """Readings by node, with a version that changes whenever they do."""

    def __init__(self) -> None:
        self._by_node: dict[NodeId, Readings] = {}
        self.version = 0

    def record(self, node_id: NodeId, readings: Readings) -> None:
        """Take over what a node says now; what it does not say any more is not kept."""
        self._by_node[node_id] = readings
        self.version += 1

    def forget(self, node_id: NodeId) -> None:
        """A node has gone."""
        if self._by_node.pop(node_id, None) is not None:
            self.version += 1

    def of(self, node_id: NodeId) -> Readings | None:
        return self._by_node.get(node_id)

    def all(self) -> dict[NodeId, Readings]:
        return dict(self._by_node)
