"""Prometheus figures of the daemon, in a registry of its own.

Requests are labelled by route template, never by raw path, so that a client cannot
grow the number of series. Knows no handler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from skulkd.observe.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LAG_INTERVAL_S = 1.0
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Readings = Callable[[], dict[str, float]]


class _RequestCollector(Collector):
    """Plain counters while serving; Prometheus' own objects only when somebody scrapes."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str, int], Histogram] = {}

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        key = (route, method if method in METHODS else "OTHER", status)
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = Histogram(BUCKETS_S)
        times.add(seconds)

    def collect(self) -> Iterator[Metric]:
        labels = ["route", "method", "status"]
        requests = CounterMetricFamily("skulk_http_requests", "Answered requests", labels=labels)
        times = HistogramMetricFamily("skulk_http_request_seconds", "Time to answer", labels=labels)
        for (route, method, status), found in sorted(self._times.items(), key=lambda one: one[0]):
            values = [route, method, str(status)]
            requests.add_metric(values, found.count)
            times.add_metric(values, found.cumulative(), found.total)
        yield requests
        yield times


class _ReadingsCollector(Collector):
    """Asks for the latest readings when somebody scrapes, and only then."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        for name, value in self._readings().items():
            yield GaugeMetricFamily(f"skulk_node_{name}", name.replace("_", " "), value)


class Metrics:
    """Counts requests and measures the event loop; `render` is the scrape answer."""

    def __init__(self, version: str, readings: Readings) -> None:
        self.registry = CollectorRegistry()
        started = time.monotonic()
        Gauge(
            "skulk_build_info", "Version of the daemon", ["version"], registry=self.registry
        ).labels(version).set(1)
        Gauge("skulk_uptime_seconds", "Time since start", registry=self.registry).set_function(
            lambda: time.monotonic() - started
        )
        self._lag = Gauge(
            "skulk_event_loop_lag_seconds",
            "How late the event loop woke a one-second timer, last time",
            registry=self.registry,
        )
        requests = _RequestCollector()
        self.registry.register(requests)
        self.registry.register(_ReadingsCollector(readings))
        self.count = requests.count
        """One answered request: route template, method, status, seconds."""

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)

    async def watch_loop(self) -> None:
        """Measure event loop lag until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_INTERVAL_S
            await asyncio.sleep(LAG_INTERVAL_S)
            self._lag.set(max(0.0, loop.time() - due))
