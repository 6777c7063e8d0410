"""What the API needs of the observe room: log lines, the event log on disk, traces."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from skulkd.api.trace_desk import TraceDesk
from skulkd.cluster.health import EVENT_LOG
from skulkd.log import JsonFormatter, LineQueue
from skulkd.log_file import FileSink, LogFileLimits
from skulkd.observe.event_disk import MIB, DiskLimits, EventDisk
from skulkd.observe.event_log import EventLog
from skulkd.observe.event_writer import EventWriter
from skulkd.observe.log_ring import LogRing
from skulkd.settings.paths import Paths
from skulkd.wire.config import EventLogSection, SkulkConfig


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
        """What an operator should know: an event log that only counts, a log nobody writes."""
        found = []
        if self.event_writer is not None and (trouble := self.event_writer.status.trouble):
            found.append(f"{EVENT_LOG}: {trouble}")
        if self.log_file is not None and self.log_file.trouble:
            where, lost = self.log_file.path, self.log_file.lost
            why = self.log_file.trouble
            found.append(f"the log file is not written, {lost} lines lost: {where}: {why}")
        return found


def build_observing(
    paths: Paths,
    config: SkulkConfig,
    events: EventLog,
    redact: Callable[[str], str],
    traces: TraceDesk,
    hostname: str,
) -> Observing:
    """The parts, connected to the log; nothing runs yet."""
    writer = None
    if config.event_log.enabled:
        writer = EventWriter(EventDisk(paths.event_log / "api", disk_limits(config.event_log)))
        events.sink = writer.take
    file = None
    if config.logging.file:
        limits = LogFileLimits(config.logging.file_mib * MIB, config.logging.files)
        lines = LineQueue(JsonFormatter(redact, hostname), logging.INFO)
        file = FileSink(paths.log_file, limits, lines)
    return Observing(LogRing(_Bare(redact)), writer, traces, file)


def disk_limits(settings: EventLogSection) -> DiskLimits:
    return DiskLimits(
        ring_bytes=settings.ring_mib * MIB,
        keep_events=settings.keep_events,
        archives=settings.archives,
        archive_bytes=settings.archives_mib * MIB,
        floor_bytes=settings.floor_mib * MIB,
    )
