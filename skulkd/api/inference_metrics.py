"""Figures of generation for `/metrics`, looked up when somebody scrapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skulkd.api.inference import Inference


class InferenceCollector(Collector):
    """`places` is how many requests a runner answers side by side."""

    def __init__(self, inference: Inference, places: int) -> None:
        self._inference = inference
        self._places = places

    def collect(self) -> Iterator[Metric]:
        inference = self._inference
        records = inference.worker.diagnostics()
        yield CounterMetricFamily(
            "skulk_tokens_generated", "Tokens sent to clients", inference.figures.tokens
        )
        yield GaugeMetricFamily(
            "skulk_requests_in_flight", "Requests without an end", len(inference.commands)
        )
        queued = inference.dispatcher.waiting
        for record in records:
            requests = sum(task.command_id is not None for task in record.in_progress_tasks)
            queued += max(0, requests - self._places)
        yield GaugeMetricFamily(
            "skulk_requests_queued", "Requests that wait for a model or for a place", queued
        )
        status = GaugeMetricFamily(
            "skulk_runners", "Runners by model and status", labels=["model", "status"]
        )
        counts: Counter[tuple[str, str]] = Counter()
        for record in records:
            counts[record.model_id, record.status_kind] += 1
        for labels, count in sorted(counts.items()):
            status.add_metric(labels, count)
        yield status
