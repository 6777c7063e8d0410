"""What a screen has seen since it was opened: short series for sparklines. No Textual."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from skulkctl.ui.rates import group_speed, total_speed
from skulkd.wire.ids import NodeId

if TYPE_CHECKING:
    from skulkctl.timeline.frames import Cluster
    from skulkctl.ui.snapshot import Snapshot
    from skulkd.wire.machine import SystemPerformanceProfile

MOST = 180
Key = tuple[str, str]
TOKENS: Key = ("tokens", "")


class History:
    """The newest values of each series, oldest first."""

    def __init__(self) -> None:
        self._series: dict[Key, deque[float]] = {}

    def of(self, kind: str, name: str = "") -> list[float]:
        return list(self._series.get((kind, name), ()))

    def add(self, snapshot: Snapshot) -> None:
        """One more value for whatever this snapshot measures."""
        if snapshot.cluster is None:
            return
        self._put(TOKENS, total_speed(snapshot, snapshot.cluster.state) or 0.0)
        self._add_totals(snapshot.cluster)
        for group in snapshot.groups:
            self._put(("speed", group.instance_id), group_speed(snapshot, group) or 0.0)
        for node in snapshot.cluster.nodes:
            system = snapshot.cluster.state.node_system.get(NodeId(node["id"]))
            self._put(("cpu", node["name"]), None if system is None else system.pcpu_usage)
            self._put(("gpu", node["name"]), gpu_percent(system))

    def _add_totals(self, cluster: Cluster) -> None:
        if cluster.load is not None:
            total = cluster.load.total
            self._put(("requests", ""), float(total.active_jobs + total.queued_jobs))
        busy = [system.pcpu_usage for system in cluster.state.node_system.values()]
        known = [share for share in busy if share is not None]
        self._put(("cpu", ""), sum(known) / len(known) if known else None)
        memories = [node["memory"] for node in cluster.nodes if node["memory"]]
        used = sum(memory["totalBytes"] - memory["availableBytes"] for memory in memories)
        self._put(("memory", ""), used / (1 << 30) if memories else None)

    def _put(self, key: Key, value: float | None) -> None:
        if value is not None:
            self._series.setdefault(key, deque(maxlen=MOST)).append(value)


def gpu_percent(system: SystemPerformanceProfile | None) -> float | None:
    """How busy the accelerator is."""
    if system is None:
        return None
    ratio = system.accelerator.utilization_ratio if system.accelerator else None
    return system.gpu_usage if ratio is None else ratio * 100
