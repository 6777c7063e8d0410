"""Prometheus metrics of generation requests and runners, computed at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from skulkd.requests.meter import ModelFigures
from skulkd.requests.prefixes import RoutingResult
from skulkd.requests.service import Requests
from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics
from skulkd.wire.timeline import RunnerStanding
from skulkd.worker.worker import Worker

STUCK_S = 30.0
"""As long without progress is a hang for `skulkctl timeline`, too."""
_SERVING = frozenset({"RunnerReady", "RunnerRunning"})


class RequestCollector(Collector):
    """`slots` is how many requests a runner answers at the same time."""

    def __init__(self, requests: Requests, worker: Worker, slots: int) -> None:
        self._requests = requests
        self._worker = worker
        self._slots = slots

    def collect(self) -> Iterator[Metric]:
        records, dispatcher = self._worker.diagnostics(), self._requests.dispatcher
        yield CounterMetricFamily(
            "skulk_tokens_generated", "Tokens sent to clients", dispatcher.meter.completion_tokens
        )
        yield GaugeMetricFamily(
            "skulk_requests_in_flight", "Requests without an end", len(self._requests)
        )
        queued = dispatcher.waiting
        for record in records:
            requests = sum(task.command_id is not None for task in record.in_progress_tasks)
            queued += max(0, requests - self._slots)
        yield GaugeMetricFamily(
            "skulk_requests_queued", "Requests that wait for a model or for a place", queued
        )
        yield from _runners(records)
        yield from _instances(dispatcher.readiness())
        yield from _requests(dispatcher.meter.models)
        yield _routing(dispatcher.prefixes.counts)


def is_stuck(record: RunnerSupervisorDiagnostics) -> bool:
    """Whether a rank that serves has work and has made no progress for `STUCK_S`."""
    if not isinstance(record, RunnerStanding) or record.status_kind not in _SERVING:
        return False
    if record.pending_seconds is not None and record.pending_seconds >= STUCK_S:
        return True
    live = record.live
    return live is not None and live.busy and live.still_seconds >= STUCK_S


def _runners(records: Sequence[RunnerSupervisorDiagnostics]) -> Iterator[Metric]:
    status = GaugeMetricFamily(
        "skulk_runners", "Runners by model and status", labels=["model", "status"]
    )
    counts = Counter((record.model_id, record.status_kind) for record in records)
    for labels, count in sorted(counts.items()):
        status.add_metric(labels, count)
    yield status
    stuck = GaugeMetricFamily(
        "skulk_stuck_ranks",
        f"Ranks on this node that have work and made no progress for {STUCK_S:g} s",
        labels=["model"],
    )
    for model in sorted({record.model_id for record in records}):
        stuck.add_metric([model], sum(is_stuck(one) for one in records if one.model_id == model))
    yield stuck


def _instances(readiness: Sequence[tuple[str, bool]]) -> Iterator[Metric]:
    placed = Counter(model for model, _ in readiness)
    ready = Counter(model for model, serves in readiness if serves)
    every = GaugeMetricFamily("skulk_instances", "Instances in the cluster", labels=["model"])
    serving = GaugeMetricFamily(
        "skulk_instances_ready", "Instances whose ranks all serve", labels=["model"]
    )
    for model in sorted(placed):
        every.add_metric([model], placed[model])
        serving.add_metric([model], ready[model])
    yield every
    yield serving


def _requests(models: dict[str, ModelFigures]) -> Iterator[Metric]:
    labels = ["model"]
    first = HistogramMetricFamily(
        "skulk_time_to_first_token_seconds", "From a request's arrival to its first token",
        labels=labels,
    )  # fmt: skip
    between = HistogramMetricFamily(
        "skulk_inter_token_seconds", "Between two tokens of one answer", labels=labels
    )
    queue = HistogramMetricFamily(
        "skulk_request_queue_seconds", "Waiting for a ready instance and for a free slot in it",
        labels=labels,
    )  # fmt: skip
    prompt = CounterMetricFamily("skulk_prompt_tokens", "Tokens of prompts", labels=labels)
    cached = CounterMetricFamily(
        "skulk_prompt_cached_tokens",
        "Tokens of prompts that a runner had in its prefix cache",
        labels=labels,
    )
    completion = CounterMetricFamily("skulk_completion_tokens", "Tokens of answers", labels=labels)
    for model, figures in sorted(models.items(), key=lambda one: one[0]):
        first.add_metric([model], figures.first_token.cumulative(), figures.first_token.total)
        between.add_metric([model], figures.inter_token.cumulative(), figures.inter_token.total)
        queue.add_metric([model], figures.queue.cumulative(), figures.queue.total)
        prompt.add_metric([model], figures.prompt_tokens)
        cached.add_metric([model], figures.cached_tokens)
        completion.add_metric([model], figures.completion_tokens)
    yield from (first, between, queue, prompt, cached, completion)


def _routing(counts: Mapping[RoutingResult, int]) -> Metric:
    family = CounterMetricFamily(
        "skulk_prefix_routing",
        "Requests with a choice of instances: sent where the beginning of the prompt is cached,"
        " elsewhere because that one is too busy, or known nowhere",
        labels=["result"],
    )
    for result in get_args(RoutingResult):
        family.add_metric([result], counts.get(result, 0))
    return family
