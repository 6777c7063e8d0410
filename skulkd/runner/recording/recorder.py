"""The flight recorder's end in the runner: entries, and the phase that the runner is in.

Imports no MLX: memory readings and the pipe are given to it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from skulkd.runner.protocol import MlxMemoryReading, Phase, PhaseEntry
from skulkd.wire.base import Attributes, format_offset
from skulkd.wire.diagnostics import (
    RunnerDiagnosticContext,
    RunnerPhase,
)
from skulkd.wire.ids import CommandId, TaskId

# Entries that never become the current phase.
_MARKS: frozenset[RunnerPhase] = frozenset({"cancel_requested", "cancel_observed"})


@dataclass(frozen=True, slots=True)
class Owner:
    """The task and command that an entry belongs to."""

    task_id: TaskId | None = None
    command_id: CommandId | None = None


NO_OWNER = Owner()
NO_ATTRS: Mapping[str, Any] = {}
# When a wait becomes an entry: never, when it lasts, or also where a request's details are shown.
EntryRule = Literal["never", "late", "detail"]


class EntrySink(Protocol):
    """Where entries go. `offer` may drop, `deliver` waits a bounded time for the Ack."""

    def offer(self, phase: Phase) -> None: ...

    def deliver(self, phase: Phase) -> bool: ...


@dataclass(eq=False, slots=True)
class Span:
    """Something entered and not yet left."""

    phase: RunnerPhase
    detail: str | None
    owner: Owner
    attrs: Mapping[str, object]
    with_memory: bool


class RecordedWait:
    """A wait that becomes an entry only when it is long. Entered and left on every step."""

    __slots__ = ("_attrs", "_outer", "_recorder", "detail", "entry", "shown", "since")

    def __init__(
        self, recorder: "PhaseRecorder", detail: str, attrs: Mapping[str, Any], entry: EntryRule
    ) -> None:
        self._recorder = recorder
        self._outer: RecordedWait | None = None
        self.detail = detail
        self.entry = entry
        self._attrs = attrs
        self.since = 0.0
        self.shown: Span | None = None

    def __enter__(self) -> None:
        self.since = time.monotonic()
        self._outer, self._recorder.waiting = self._recorder.waiting, self
        if self.entry == "detail" and self._recorder.details:
            self.show()

    def __exit__(self, *_: object) -> None:
        self._recorder.end_wait(self, self._outer)

    def show(self) -> None:
        """Make an entry of it, within the current phase."""
        recorder = self._recorder
        phase: RunnerPhase = recorder.visible.phase
        if phase not in ("prefill_pipeline", "warmup"):
            phase = "decode_stream"
        self.shown = recorder.enter(
            phase, self.detail, owner=recorder.visible.owner, memory=False, **self._attrs
        )


@dataclass
class PhaseRecorder:
    """Makes entries. Threads may share it; nothing in here waits for the pipe.

    Spans may overlap without nesting: requests join and leave between steps. The span entered
    last and still open is the one that shows; leaving it shows the one before again.
    """

    context: RunnerDiagnosticContext
    sink: EntrySink
    read_memory: Callable[[], MlxMemoryReading | None]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _open: list[Span] = field(default_factory=list)
    _base: Span = field(default_factory=lambda: Span("created", None, NO_OWNER, {}, False))
    _sequence: int = 0
    waiting: RecordedWait | None = None
    """The innermost wait at this moment; None: the runner computes."""
    step: int = 0
    moves: int = 0
    """Waits that have ended; with `step` it shows progress between entries."""
    details: bool = False
    """Whether every wait becomes an entry, as in the first steps of a request."""
    listener: Callable[[Span, str], None] = lambda _span, _event: None
    """Called with every entry, outside the lock."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def visible(self) -> Span:
        """The current phase: the newest open span, else the last point."""
        return self._open[-1] if self._open else self._base

    def point(
        self,
        phase: RunnerPhase,
        event: str,
        detail: str | None = None,
        *,
        owner: Owner = NO_OWNER,
        memory: bool = False,
        **attrs: object,
    ) -> None:
        """An event without duration. Changes the phase only outside of every span."""
        span = Span(phase, detail, owner, attrs, memory)
        with self._lock:
            if phase not in _MARKS:
                self._base = span
            self._offer(span, event)
        self.listener(span, event)

    def enter(
        self,
        phase: RunnerPhase,
        detail: str | None = None,
        *,
        owner: Owner = NO_OWNER,
        memory: bool = False,
        **attrs: object,
    ) -> Span:
        """Open a span; `leave` closes it."""
        span = Span(phase, detail, owner, attrs, memory)
        with self._lock:
            self._open.append(span)
            self._offer(span, "enter")
        self.listener(span, "enter")
        return span

    def leave(self, span: Span) -> None:
        with self._lock:
            self._open.remove(span)
            self._offer(span, "exit")
        self.listener(span, "exit")

    def abandon(self, span: Span) -> None:
        """Close a span whose work was cancelled: without an exit entry."""
        with self._lock:
            self._open.remove(span)

    @contextmanager
    def span(
        self,
        phase: RunnerPhase,
        detail: str | None = None,
        *,
        owner: Owner = NO_OWNER,
        memory: bool = False,
        **attrs: object,
    ) -> Iterator[None]:
        """A span around a block; an exception is recorded instead of the exit."""
        span = self.enter(phase, detail, owner=owner, memory=memory, **attrs)
        try:
            yield
        except Exception as error:
            with self._lock:
                self._open.remove(span)
                failure = Span("error", f"{type(error).__name__}: {error}", owner, {}, True)
                self._offer(failure, "exception")
            raise
        self.leave(span)

    def wait(
        self, detail: str, attrs: Mapping[str, Any] = NO_ATTRS, entry: EntryRule = "detail"
    ) -> RecordedWait:
        """A wait that becomes an entry only when it is long, by `show_long_wait`."""
        return RecordedWait(self, detail, attrs, entry)

    def end_wait(self, wait: RecordedWait, outer: RecordedWait | None) -> None:
        """The wait is over; the one around it goes on."""
        with self._lock:
            self.waiting = outer
            self.moves += 1
            if outer is not None:
                outer.since = time.monotonic()
            if wait.shown is not None:
                self.leave(wait.shown)

    def show_long_wait(self, after_s: float) -> None:
        """Make an entry of the current wait if it takes longer than this."""
        with self._lock:
            wait = self.waiting
            if (
                wait is not None
                and wait.entry != "never"
                and wait.shown is None
                and time.monotonic() - wait.since > after_s
            ):
                wait.show()

    def breadcrumb(
        self, event: str, detail: str, *, phase: RunnerPhase | None = None, **attrs: object
    ) -> bool:
        """An entry before a deliberate exit: waits, bounded, until the supervisor has it.

        Takes no memory reading, because the accelerator may be what is stuck.
        """
        with self._lock:
            self._sequence += 1
            shown = self.visible
            span = Span(phase or shown.phase, detail, shown.owner, attrs, False)
            message = self._message(span, event, sequence=self._sequence)
        return self.sink.deliver(message)

    def _offer(self, span: Span, event: str) -> None:
        self.sink.offer(self._message(span, event))

    def _message(self, span: Span, event: str, sequence: int | None = None) -> Phase:
        shown = self.visible
        return Phase(
            PhaseEntry(
                format_offset(self.now()),
                span.phase,
                event,
                plain_attributes(span.attrs),
                span.detail,
                span.owner.task_id,
                span.owner.command_id,
                self.read_memory() if span.with_memory else None,
            ),
            shown.phase,
            shown.detail,
            shown.owner.task_id,
            shown.owner.command_id,
            sequence,
        )


def plain_attributes(attrs: Mapping[str, object]) -> Attributes:
    """Attributes as the recorder keeps them: scalars as they are, lists as texts, no None."""
    plain: Attributes = {}
    for name, value in attrs.items():
        if value is None:
            continue
        if isinstance(value, str | bool | int | float):
            plain[name] = value
        elif isinstance(value, list | tuple):
            plain[name] = [str(item) for item in value]
        else:
            plain[name] = str(value)
    return plain
