"""What the API needs of the observe room: log lines, the event log on disk, traces."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from skulkd.api.trace_desk import TraceDesk
from skulkd.cluster.health import EVENT_LOG
from skulkd.observe.event_disk import MIB, DiskLimits, EventDisk
from skulkd.observe.event_log import EventLog
from skulkd.observe.event_writer import EventWriter
from skulkd.observe.log_ring import LogRing
from skulkd.settings.paths import Paths
from skulkd.wire.config import EventLogSection


class _Bare(logging.Formatter):
    """Only the message, in one line, without secrets; time and level are kept beside it."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        told = record.getMessage()
        if record.exc_info:
            told = f"{told}\n{self.formatException(record.exc_info)}"
        return self._redact(told)


@dataclass(frozen=True, slots=True)
class Observing:
    """The parts; `start` and `stop` are for the composition root."""

    log: LogRing
    event_writer: EventWriter | None
    traces: TraceDesk

    def start(self) -> None:
        logging.getLogger().addHandler(self.log)
        if self.event_writer is not None:
            self.event_writer.start()

    def stop(self) -> None:
        """Blocking, for at most a few seconds."""
        logging.getLogger().removeHandler(self.log)
        if self.event_writer is not None:
            self.event_writer.stop()

    def warnings(self) -> list[str]:
        """What an operator should know: an event log that only counts."""
        if self.event_writer is None:
            return []
        trouble = self.event_writer.status.trouble
        return [] if trouble is None else [f"{EVENT_LOG}: {trouble}"]


def build_observing(
    paths: Paths,
    settings: EventLogSection,
    events: EventLog,
    redact: Callable[[str], str],
    traces: TraceDesk,
) -> Observing:
    """The parts, connected to the log; nothing runs yet."""
    writer = None
    if settings.enabled:
        writer = EventWriter(EventDisk(paths.event_log / "api", disk_limits(settings)))
        events.sink = writer.take
    return Observing(LogRing(_Bare(redact)), writer, traces)


def disk_limits(settings: EventLogSection) -> DiskLimits:
    return DiskLimits(
        ring_bytes=settings.ring_mib * MIB,
        keep_events=settings.keep_events,
        archives=settings.archives,
        archive_bytes=settings.archives_mib * MIB,
        floor_bytes=settings.floor_mib * MIB,
    )
