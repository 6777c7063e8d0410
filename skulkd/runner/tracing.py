"""Spans of traced tasks: what took how long on this rank. Costs nothing while nothing is traced.

What is measured so far is sent now and then, and once more at the end, so that the trace survives
a rank that is killed. Starts are wall-clock microseconds, because ranks are compared; durations
come from a clock that never jumps.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from skulkd.runner.protocol import TaskTrace
from skulkd.wire.base import Attributes
from skulkd.wire.diagnostics import RunnerDiagnosticContext
from skulkd.wire.ids import TaskId
from skulkd.wire.tracing import UNFINISHED, TraceEventResponse

# What was measured is sent after this time, then after twice as long and so on: all that is sent
# before the end is no more than what is sent at the end.
FIRST_SENT_S = 0.5
# A long answer has thousands of steps; the first ones tell as much.
MAX_STEPS = 1000
_TAG = "text_generation"


@dataclass(slots=True)
class _Session:
    events: list[TraceEventResponse] = field(default_factory=list)
    open: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    sent_every_s: float = FIRST_SENT_S
    send_at: float = 0.0


class Tracer:
    """`send` gets a task's spans when the task ends, and what there is of them before."""

    def __init__(
        self,
        context: RunnerDiagnosticContext,
        send: Callable[[TaskTrace], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._send = send
        self._now = now
        self._sessions: dict[TaskId, _Session] = {}

    @property
    def active(self) -> bool:
        return bool(self._sessions)

    def start(self, task_id: TaskId) -> None:
        self._sessions[task_id] = _Session(send_at=self._now() + FIRST_SENT_S)
        self.mark(task_id, "queued", "lifecycle")

    def mark(self, task_id: TaskId, name: str, category: str, **attrs: str | int | float) -> None:
        """Something that happened at one moment."""
        if (session := self._sessions.get(task_id)) is not None:
            session.events.append(self._event(name, category, 0.0, dict(attrs)))

    def begin(self, task_id: TaskId, name: str) -> None:
        if (session := self._sessions.get(task_id)) is not None:
            session.open[name] = time.monotonic()

    def end(self, task_id: TaskId, name: str, category: str, **attrs: str | int | float) -> None:
        """Close a span that was begun; nothing when there is none."""
        session = self._sessions.get(task_id)
        if session is not None and (began := session.open.pop(name, None)) is not None:
            took = time.monotonic() - began
            session.events.append(self._event(name, category, took, dict(attrs)))
            self._send_so_far(task_id, session)

    def step(self, task_ids: Iterable[TaskId], began: float) -> None:
        """A decoding step that several tasks shared; `began` is monotonic."""
        ids = list(task_ids)
        took = time.monotonic() - began
        open_ones = {one: self._sessions[one] for one in ids if one in self._sessions}
        wanted = {one: got for one, got in open_ones.items() if got.steps < MAX_STEPS}
        if not wanted:
            return
        attrs: Attributes = {
            "shared_span": True,
            "batch_size": len(ids),
            "participant_task_ids": [str(one) for one in ids],
        }
        # One event for all of them: it is the same, and every step pays for making it.
        event = self._event("decode_step", "decode", took, attrs, "shared")
        for task_id, session in wanted.items():
            session.steps += 1
            session.events.append(event)
            self._send_so_far(task_id, session)

    def _send_so_far(self, task_id: TaskId, session: _Session) -> None:
        if self._now() < session.send_at:
            return
        session.sent_every_s *= 2
        session.send_at = self._now() + session.sent_every_s
        # The mark is not kept: the next part replaces this one.
        mark = self._event(UNFINISHED, "lifecycle", 0.0, {})
        self._send(
            TaskTrace(task_id=task_id, rank=self._context.rank, traces=[*session.events, mark])
        )

    def finish(self, task_id: TaskId, how: str, **attrs: str | int | float) -> None:
        """Send what was measured. `how` is finish, cancel, error or aborted."""
        session = self._sessions.get(task_id)
        if session is None:
            return
        for name in list(session.open):
            self.end(task_id, name, name)
        self.mark(task_id, how, "lifecycle", **attrs)
        del self._sessions[task_id]
        self._send(TaskTrace(task_id=task_id, rank=self._context.rank, traces=session.events))

    def abort(self, message: str) -> None:
        """Everything open ends here, because the runner does."""
        for task_id in list(self._sessions):
            self.finish(task_id, "aborted", message=message)

    def _event(
        self, name: str, category: str, took_s: float, attrs: Attributes, *tags: str
    ) -> TraceEventResponse:
        return TraceEventResponse(
            name=name,
            start_us=int((time.time() - took_s) * 1e6),
            duration_us=int(took_s * 1e6),
            rank=self._context.rank,
            category=category,
            node_id=self._context.node_id,
            model_id=self._context.model_id,
            task_kind="text",
            tags=[_TAG, *tags],
            attrs=attrs,
        )
