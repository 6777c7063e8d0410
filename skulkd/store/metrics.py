"""Storage metrics of this node, from figures that are known already: a scrape reads no disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skulkd.store.staging.evictor import Evictor
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State

CODES = ("disk_low", "disk_full", "download_failed")
STATES = ("DownloadPending", "DownloadOngoing", "DownloadCompleted", "DownloadFailed")


class StorageCollector(Collector):
    """Computed at every scrape."""

    def __init__(self, node_id: NodeId, evictor: Evictor, view: Callable[[], State]) -> None:
        self._node_id = node_id
        self._caretaker = evictor
        self._view = view

    def collect(self) -> Iterator[Metric]:
        state = self._view()
        health = state.node_health.get(self._node_id)
        found = {reason.code for reason in health.reasons} if health is not None else set()
        problems = GaugeMetricFamily(
            "skulk_storage_problem", "1 while the node reports this problem", labels=["code"]
        )
        for code in CODES:
            problems.add_metric([code], float(code in found))
        yield problems
        downloads = GaugeMetricFamily(
            "skulk_downloads", "Models by the state of their files", labels=["state"]
        )
        kinds = [type(entry).__name__ for entry in state.downloads.get(self._node_id, ())]
        for kind in STATES:
            downloads.add_metric([kind.removeprefix("Download").lower()], kinds.count(kind))
        yield downloads
        last = self._caretaker.last
        if last is not None:
            figures = {
                "staged_bytes": last.staged_total_bytes,
                "staged_models": len(last.staged_models),
                "staging_evictable_bytes": last.next_eviction_bytes,
                "staging_disk_free_bytes": last.disk_free_bytes,
                "staging_disk_total_bytes": last.disk_total_bytes,
            }
            for name, value in figures.items():
                yield GaugeMetricFamily(f"skulk_{name}", name.replace("_", " "), value)
