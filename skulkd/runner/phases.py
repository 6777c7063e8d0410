"""Phases of a runner: entries for the flight recorder, and the phase that shows now.

Knows no MLX: memory readings, the clock and the way out are given to it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from skulkd.runner.phase_frames import Entry, MemoryReading, Phase
from skulkd.wire.base import Attributes, format_offset
from skulkd.wire.diagnostics import (
    RunnerDiagnosticContext,
    RunnerPhase,
)
from skulkd.wire.ids import CommandId, TaskId

# Marks on top of whatever goes on: they never become the visible phase.
_MARKS: frozenset[RunnerPhase] = frozenset({"cancel_requested", "cancel_observed"})


@dataclass(frozen=True, slots=True)
class Owner:
    """The task and command that an entry belongs to."""

    task_id: TaskId | None = None
    command_id: CommandId | None = None


NOBODY = Owner()
NO_ATTRS: Mapping[str, Any] = {}
# When a wait becomes an entry: never, when it lasts, or also where a request's details are shown.
EntryRule = Literal["never", "late", "detail"]


class Outlet(Protocol):
    """Where entries go. `offer` may drop, `deliver` waits a bounded time for the receipt."""

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


class Brief:
    """A wait that is not worth an entry unless it lasts. Entered and left on every step."""

    __slots__ = ("_attrs", "_outer", "_recorder", "detail", "entry", "shown", "since")

    def __init__(
        self, recorder: "PhaseRecorder", detail: str, attrs: Mapping[str, Any], entry: EntryRule
    ) -> None:
        self._recorder = recorder
        self._outer: Brief | None = None
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
        self._recorder.waited(self, self._outer)

    def show(self) -> None:
        """Make an entry of it after all, inside whatever goes on."""
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
    outlet: Outlet
    read_memory: Callable[[], MemoryReading | None]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _open: list[Span] = field(default_factory=list)
    _base: Span = field(default_factory=lambda: Span("created", None, NOBODY, {}, False))
    _sequence: int = 0
    waiting: Brief | None = None
    """What the runner waits in at this moment; None: it does something of its own."""
    step: int = 0
    moves: int = 0
    """Waits that have ended. With `step` the finest sign of life there is."""
    details: bool = False
    """Whether every wait becomes an entry, as in the first steps of a request."""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def visible(self) -> Span:
        """What goes on now: the newest open span, else the last point."""
        return self._open[-1] if self._open else self._base

    def point(
        self,
        phase: RunnerPhase,
        event: str,
        detail: str | None = None,
        *,
        owner: Owner = NOBODY,
        memory: bool = False,
        **attrs: object,
    ) -> None:
        """Something that happened at one moment. Moves the phase only outside every span."""
        with self._lock:
            if phase not in _MARKS:
                self._base = Span(phase, detail, owner, attrs, memory)
            self._offer(Span(phase, detail, owner, attrs, memory), event)

    def enter(
        self,
        phase: RunnerPhase,
        detail: str | None = None,
        *,
        owner: Owner = NOBODY,
        memory: bool = False,
        **attrs: object,
    ) -> Span:
        """Open a span; `leave` closes it."""
        span = Span(phase, detail, owner, attrs, memory)
        with self._lock:
            self._open.append(span)
            self._offer(span, "enter")
        return span

    def leave(self, span: Span) -> None:
        with self._lock:
            self._open.remove(span)
            self._offer(span, "exit")

    def abandon(self, span: Span) -> None:
        """Close a span whose work was called off: no exit entry, as nothing was completed."""
        with self._lock:
            self._open.remove(span)

    @contextmanager
    def inside(
        self,
        phase: RunnerPhase,
        detail: str | None = None,
        *,
        owner: Owner = NOBODY,
        memory: bool = False,
        **attrs: object,
    ) -> Iterator[None]:
        """A span around a block; an exception is recorded instead of the exit, then goes on."""
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

    def brief(
        self, detail: str, attrs: Mapping[str, Any] = NO_ATTRS, entry: EntryRule = "detail"
    ) -> Brief:
        """A wait that becomes an entry only when it lasts; another thread looks, see `surface`."""
        return Brief(self, detail, attrs, entry)

    def waited(self, brief: Brief, outer: Brief | None) -> None:
        """The wait is over, and what it was part of goes on."""
        with self._lock:
            self.waiting = outer
            self.moves += 1
            if outer is not None:
                outer.since = time.monotonic()
            if brief.shown is not None:
                self.leave(brief.shown)

    def surface(self, after_s: float) -> None:
        """Show what has been waited for longer than this."""
        with self._lock:
            brief = self.waiting
            if (
                brief is not None
                and brief.entry != "never"
                and brief.shown is None
                and time.monotonic() - brief.since > after_s
            ):
                brief.show()

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
        return self.outlet.deliver(message)

    def _offer(self, span: Span, event: str) -> None:
        self.outlet.offer(self._message(span, event))

    def _message(self, span: Span, event: str, sequence: int | None = None) -> Phase:
        shown = self.visible
        return Phase(
            Entry(
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
