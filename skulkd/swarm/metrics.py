"""Prometheus metrics of load and drain, computed at each scrape."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skulkd.swarm.swarm import Swarm

_CLASSES = ("chat", "agentic", "generic_job")
_FIGURES = {
    "max_concurrency": "Slots for work",
    "active_jobs": "Work in progress",
    "queued_jobs": "Work that waits for a slot",
    "free_slots": "Free slots; none while the node drains",
}


class LoadCollector(Collector):
    """One gauge per figure, labelled by execution class."""

    def __init__(self, swarm: Swarm) -> None:
        self._swarm = swarm

    def collect(self) -> Iterator[Metric]:
        load = self._swarm.load()
        for figure, about in _FIGURES.items():
            gauge = GaugeMetricFamily(f"skulk_load_{figure}", about, labels=["execution_class"])
            for name in _CLASSES:
                gauge.add_metric([name], getattr(getattr(load.classes, name), figure))
            yield gauge
        yield GaugeMetricFamily(
            "skulk_load_recent_failures", "Of the last pieces of work", load.recent_failure_count
        )
        if load.avg_latency_ms is not None:
            yield GaugeMetricFamily(
                "skulk_load_latency_seconds",
                "Mean of the last 50 pieces of work",
                load.avg_latency_ms / 1000,
            )
        yield GaugeMetricFamily(
            "skulk_node_draining", "1 while this node takes no new work", int(load.draining)
        )
        yield GaugeMetricFamily(
            "skulk_swarm_results_owed",
            "Results of gateway jobs that are not delivered",
            self._swarm.service.owed(),
        )
