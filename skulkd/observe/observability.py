"""Logs, the event log on disk and traces of one node, started and stopped together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from skulkd.log import JsonFormatter, LineQueue
from skulkd.log_file import FileSink, LogFileLimits
from skulkd.observe.event_disk import MIB, DiskLimits, EventDisk
from skulkd.observe.event_log import EventLog
from skulkd.observe.event_writer import EventWriter
from skulkd.observe.log_ring import LogRing
from skulkd.observe.trace_collector import TraceCollector
from skulkd.settings.paths import Paths
from skulkd.wire.config import EventLogSection, SkulkConfig
from skulkd.wire.health import EVENT_LOG_DEGRADED


class _MessageFormatter(logging.Formatter):
    """Only the redacted message; the log ring keeps time and level itself."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return self._redact(text)


@dataclass(frozen=True, slots=True)
class Observability:
    """What the node records about itself."""

    log: LogRing
    event_writer: EventWriter | None
    traces: TraceCollector
    log_file: FileSink | None = None

    def start(self) -> None:
        logging.getLogger().addHandler(self.log)
        if self.log_file is not None:
            logging.getLogger().addHandler(self.log_file.handler)
            self.log_file.start()
        if self.event_writer is not None:
            self.event_writer.start()

    def threads(self) -> dict[str, EventWriter | FileSink]:
        """By name; each can be started again."""
        found = {"event-log": self.event_writer, "log-file": self.log_file}
        return {name: owner for name, owner in found.items() if owner is not None}

    def stop(self) -> None:
        """Blocking, for at most a few seconds."""
        if self.event_writer is not None:
            self.event_writer.stop()
        logging.getLogger().removeHandler(self.log)
        if self.log_file is not None:
            logging.getLogger().removeHandler(self.log_file.handler)
            self.log_file.stop()

    def warnings(self) -> list[str]:
        """An event log in counting-only mode, or a log file that cannot be written."""
        found = []
        if self.event_writer is not None and (trouble := self.event_writer.status.trouble):
            found.append(f"{EVENT_LOG_DEGRADED}: {trouble}")
        if self.log_file is not None and self.log_file.trouble:
            where, lost = self.log_file.path, self.log_file.lost
            why = self.log_file.trouble
            found.append(f"the log file is not written, {lost} lines lost: {where}: {why}")
        return found


def build_observability(
    paths: Paths,
    config: SkulkConfig,
    events: EventLog,
    redact: Callable[[str], str],
    traces: TraceCollector,
    hostname: str,
) -> Observability:
    """Connected to the event log; nothing runs yet."""
    writer = None
    if config.event_log.enabled:
        writer = EventWriter(EventDisk(paths.event_log / "api", disk_limits(config.event_log)))
        events.sink = writer.take
    file = None
    if config.logging.file:
        limits = LogFileLimits(config.logging.file_mib * MIB, config.logging.files)
        lines = LineQueue(JsonFormatter(redact, hostname), logging.INFO)
        file = FileSink(paths.log_file, limits, lines)
    return Observability(LogRing(_MessageFormatter(redact)), writer, traces, file)


def disk_limits(settings: EventLogSection) -> DiskLimits:
    return DiskLimits(
        ring_bytes=settings.ring_mib * MIB,
        keep_events=settings.keep_events,
        archives=settings.archives,
        archive_bytes=settings.archives_mib * MIB,
        floor_bytes=settings.floor_mib * MIB,
    )
