"""Figures of the logs on disk for `/metrics`, looked up when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from skulkd.observe.observability import Observability


class EventLogCollector(Collector):
    """The log file and the event log; nothing of what is kept in memory only."""

    def __init__(self, observe: Observability) -> None:
        self._observe = observe

    def collect(self) -> Iterator[Metric]:
        file = self._observe.log_file
        if file is not None:
            yield GaugeMetricFamily(
                "skulk_log_file_bytes", "Size of skulk.log and its older parts", file.bytes_on_disk
            )
            yield CounterMetricFamily(
                "skulk_log_lines_not_written", "Lines that skulk.log could not take", file.lost
            )
        writer = self._observe.event_writer
        if writer is None:
            return
        status = writer.status
        yield GaugeMetricFamily(
            "skulk_event_log_bytes",
            "Size of the event log and its archives",
            status.active_bytes + status.archive_bytes,
        )
        yield GaugeMetricFamily(
            "skulk_event_log_counting_only",
            "1 while events are only counted, for lack of space",
            float(status.counting_only),
        )
        yield CounterMetricFamily(
            "skulk_events_written", "Events written to the log", status.written
        )
        yield CounterMetricFamily(
            "skulk_events_not_written", "Events counted only", status.counted + writer.lost
        )
