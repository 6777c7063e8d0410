"""Logging of the daemon: human lines on stderr, JSON lines on stdout, both behind queues.

Each sink has its own bounded queue and thread, so that a reader who stops reading
costs lines (counted and reported), never time. Knows nothing of what is logged.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import queue
import re
import select
import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
QUEUE_LINES = 10_000
FLUSH_DEADLINE_S = 1.0
NOISY = ("aiohttp.access", "asyncio")

Redact = Callable[[str], str]
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

log = logging.getLogger(__name__)


class HumanFormatter(logging.Formatter):
    """`time level message request_id=…`; with `verbose` also where the line comes from."""

    def __init__(self, redact: Redact, *, verbose: bool) -> None:
        super().__init__()
        self._redact = redact
        self._verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).astimezone()
        parts = [f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03d}", record.levelname]
        if self._verbose:
            parts.append(f"{record.name}:{record.funcName}:{record.lineno}")
        parts.append(_one_line(self._redact(record.getMessage())))
        if (request_id := REQUEST_ID.get()) is not None:
            parts.append(f"request_id={request_id}")
        if record.exc_info:
            parts.append("\n" + self._redact(self.formatException(record.exc_info)))
        return " ".join(parts)


class JsonFormatter(logging.Formatter):
    """One object per line, with the field names and order that log shippers expect."""

    def __init__(self, redact: Redact, hostname: str) -> None:
        super().__init__()
        self._redact = redact
        self._hostname = hostname

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        segments = record.name.split(".")
        line: dict[str, Any] = {
            "ts": f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z",
            "level": record.levelname,
            "node_id": self._hostname,
            "component": segments[1] if len(segments) > 1 else record.name or "unknown",
            "module": record.name,
            "function": record.funcName or "",
            "line": record.lineno,
            "msg": self._redact(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = self._redact(self.formatException(record.exc_info))
        if (request_id := REQUEST_ID.get()) is not None:
            line["request_id"] = request_id
        if (audit := getattr(record, "audit", None)) is not None:
            line["audit"] = self._redacted(audit)
        return json.dumps(line, ensure_ascii=False)

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._redacted(entry) for key, entry in value.items()}
        return self._redact(value) if isinstance(value, str) else value


class LineQueue(logging.handlers.QueueHandler):
    """Formats in the caller, queues the finished line, and counts what did not fit."""

    def __init__(self, formatter: logging.Formatter, level: int, size: int = QUEUE_LINES) -> None:
        self.lines: queue.Queue[str | None] = queue.Queue(size)
        super().__init__(self.lines)
        self.setFormatter(formatter)
        self.setLevel(level)
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> str:
        return self.format(record)

    def enqueue(self, record: object) -> None:
        try:
            self.lines.put_nowait(str(record))
        except queue.Full:
            self.dropped += 1


@dataclass(slots=True)
class Sink:
    """Drains one queue into one file descriptor, in its own thread."""

    name: str
    fd: int
    handler: LineQueue
    broken: bool = False
    told: int = 0
    _thread: threading.Thread | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._drain, name=f"log-{self.name}", daemon=True)
        self._thread.start()

    def stop(self, deadline_s: float = FLUSH_DEADLINE_S) -> None:
        """Write what is queued, but never wait longer than the deadline for a stuck reader."""
        if self._thread is None:
            return
        try:
            self.handler.lines.put(None, timeout=deadline_s)
        except queue.Full:
            return
        self._thread.join(deadline_s)

    def _drain(self) -> None:
        while (line := self.handler.lines.get()) is not None:
            if not self.broken:
                self._write(line)
                self._report_loss()

    def _report_loss(self) -> None:
        # Written past the queue, which is full when lines are lost.
        lost = self.handler.dropped - self.told
        if lost:
            self.told += lost
            text = "%d log lines were lost here, their reader is too slow"
            record = log.makeRecord(__name__, logging.WARNING, __file__, 0, text, (lost,), None)
            self._write(self.handler.format(record))

    def _write(self, line: str) -> None:
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        try:
            while data:
                try:
                    data = data[os.write(self.fd, data) :]
                except BlockingIOError:
                    # Whoever shares the descriptor with us made it non-blocking.
                    select.select((), (self.fd,), ())
        except OSError as error:
            # Told before it counts as broken, or a stop in between would lose the warning.
            log.warning(
                "nobody reads the log on %s any more (%s), it is switched off", self.name, error
            )
            self.broken = True


@dataclass(slots=True)
class LogSystem:
    """The sinks that are running; `stop` flushes them."""

    sinks: tuple[Sink, ...]

    def threads(self) -> dict[str, Sink]:
        """By name; each can be started again."""
        return {f"log-{sink.name}": sink for sink in self.sinks}

    def stop(self) -> None:
        root = logging.getLogger()
        for sink in self.sinks:
            root.removeHandler(sink.handler)
            sink.stop()


def start_logging(
    *,
    level: int,
    redact: Redact,
    json_hostname: str | None = None,
    stderr_fd: int = 2,
    stdout_fd: int = 1,
) -> LogSystem:
    """Route the root logger to stderr, and to stdout as JSON when a host name is given."""
    human = HumanFormatter(redact, verbose=level <= logging.DEBUG)
    sinks = [Sink("stderr", stderr_fd, LineQueue(human, level))]
    if json_hostname is not None:
        shipped = JsonFormatter(redact, json_hostname)
        sinks.append(Sink("stdout", stdout_fd, LineQueue(shipped, logging.INFO)))
    root = logging.getLogger()
    root.setLevel(min(sink.handler.level for sink in sinks))
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    for sink in sinks:
        root.addHandler(sink.handler)
        sink.start()
    return LogSystem(tuple(sinks))


def hide_values(redact: Redact, secrets: Iterable[str]) -> Redact:
    """A redactor that also hides these exact values, wherever they stand."""
    values = [value for value in secrets if value]

    def hidden(text: str) -> str:
        for value in values:
            text = text.replace(value, "[redacted]")
        return redact(text)

    return hidden


def _one_line(message: str) -> str:
    # A name or path from outside must not forge a log line or steer a terminal.
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), message)
