"""Traces of tasks: how long each part took on this rank, derived from the recorder's entries.

The spans so far are sent now and then, and once more at the end, so that the trace survives a rank
that is killed. Starts are wall-clock microseconds, because ranks are compared; durations come from
the monotonic clock.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from skulkd.runner.protocol import TaskTrace
from skulkd.runner.recording.recorder import Span
from skulkd.wire.base import Attributes
from skulkd.wire.diagnostics import RunnerDiagnosticContext
from skulkd.wire.ids import TaskId
from skulkd.wire.tracing import UNFINISHED, TraceEventResponse, TraceTaskKind

# Spans are sent after this time, then after twice as long and so on: all that is sent before the
# end is no more than what is sent at the end.
FIRST_SENT_S = 0.5
# A long answer has thousands of steps; the first ones are enough.
MAX_STEPS = 1000


class _Rule(NamedTuple):
    """What an entry means for a trace: a mark, the end of a span, the beginning of another."""

    mark: tuple[str, str] | None = None
    end: tuple[str, str] | None = None
    begin: str | None = None
    attr: str | None = None
    """Of the entry, kept in the mark or in the span that ends."""
    plus: int = 0
    """Added to that attribute."""


class TraceKind(NamedTuple):
    """What traces say of the work they are about."""

    task_kind: TraceTaskKind
    tag: str


TEXT = TraceKind("text", "text_generation")
EMBEDDING = TraceKind("embedding", "embedding")

# By event; entries of spans by event and detail.
_RULES = {
    "enter batch_apply_chat_template": _Rule(begin="prompt_build"),
    "prompt_tokenized": _Rule(end=("prompt_build", "prompt"), attr="prompt_tokens"),
    # The entry counts the rows that were there before.
    "batch_queue_admitted": _Rule(
        mark=("admitted_to_batch", "lifecycle"), attr="batch_size", plus=1
    ),
    "kv_cache_result": _Rule(mark=("kv_cache_result", "kv_cache"), attr="prefix_hit_length"),
    "enter embedding_tokenize": _Rule(begin="tokenize"),
    "exit embedding_tokenize": _Rule(end=("tokenize", "embedding"), attr="inputs"),
    "batch_first_token": _Rule(mark=("first_token", "decode"), begin="decode"),
    **{
        f"{event} {detail}": rule
        for detail in ("stream_generate_prefill", "pipeline_parallel_prefill")
        for event, rule in {
            "enter": _Rule(begin="prefill"),
            "exit": _Rule(end=("prefill", "prefill"), attr="prompt_tokens"),
        }.items()
    },
}


@dataclass(slots=True)
class _Trace:
    task_id: TaskId
    events: list[TraceEventResponse] = field(default_factory=list)
    open: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    send_every_s: float = FIRST_SENT_S
    send_at: float = 0.0


class Tracer:
    """`send` gets a task's events when the task ends, and those so far before that."""

    def __init__(
        self,
        context: RunnerDiagnosticContext,
        send: Callable[[TaskTrace], None],
        now: Callable[[], float] = time.monotonic,
        kind: TraceKind = TEXT,
    ) -> None:
        self._context = context
        self._kind = kind
        self._send = send
        self._now = now
        self._traces: dict[TaskId, _Trace] = {}

    @property
    def active(self) -> bool:
        return bool(self._traces)

    def start(self, task_id: TaskId) -> None:
        queued = self._event("queued", "lifecycle", 0.0, {})
        self._traces[task_id] = _Trace(task_id, [queued], send_at=self._now() + FIRST_SENT_S)

    def observe(self, span: Span, event: str) -> None:
        """The recorder's listener."""
        trace = self._traces.get(span.owner.task_id) if span.owner.task_id else None
        if trace is None:
            return
        rule = _RULES.get(f"{event} {span.detail}" if event in ("enter", "exit") else event)
        if rule is None:
            return
        attrs: Attributes = {}
        if rule.attr is not None and isinstance(value := span.attrs[rule.attr], int):
            attrs[rule.attr] = value + rule.plus
        if rule.mark is not None:
            trace.events.append(self._event(*rule.mark, 0.0, attrs))
        if rule.end is not None:
            self._end(trace, *rule.end, attrs)
            self._send_so_far(trace)
        if rule.begin is not None:
            trace.open[rule.begin] = time.monotonic()

    def _end(self, trace: _Trace, name: str, category: str, attrs: Attributes) -> None:
        if (began := trace.open.pop(name, None)) is not None:
            took_s = time.monotonic() - began
            trace.events.append(self._event(name, category, took_s, attrs))

    def step(
        self,
        task_ids: Iterable[TaskId],
        began: float,
        name: str = "decode_step",
        category: str = "decode",
    ) -> None:
        """A step that several tasks shared; `began` is monotonic."""
        ids = list(task_ids)
        took = time.monotonic() - began
        traces = [
            trace
            for task_id in dict.fromkeys(ids)
            if (trace := self._traces.get(task_id)) is not None
        ]
        traces = [trace for trace in traces if trace.steps < MAX_STEPS]
        if not traces:
            return
        attrs: Attributes = {
            "shared_span": True,
            "batch_size": len(ids),
            "participant_task_ids": [str(task_id) for task_id in ids],
        }
        # One event for all of them, because making it takes time in every step.
        event = self._event(name, category, took, attrs, "shared")
        for trace in traces:
            trace.steps += 1
            trace.events.append(event)
            self._send_so_far(trace)

    def _send_so_far(self, trace: _Trace) -> None:
        if self._now() < trace.send_at:
            return
        trace.send_every_s *= 2
        trace.send_at = self._now() + trace.send_every_s
        # The mark is not kept: the next message replaces this one.
        mark = self._event(UNFINISHED, "lifecycle", 0.0, {})
        self._send_events(trace, [*trace.events, mark])

    def finish(self, task_id: TaskId, outcome: str, attrs: Attributes | None = None) -> None:
        """Send the trace of a task that ended: finish, cancel, error or aborted."""
        if (trace := self._traces.pop(task_id, None)) is None:
            return
        for name in list(trace.open):
            self._end(trace, name, name, {})
        trace.events.append(self._event(outcome, "lifecycle", 0.0, attrs or {}))
        self._send_events(trace, trace.events)

    def abort(self, message: str) -> None:
        """End all traces, because the runner ends."""
        for task_id in list(self._traces):
            self.finish(task_id, "aborted", {"message": message})

    def _send_events(self, trace: _Trace, events: list[TraceEventResponse]) -> None:
        self._send(TaskTrace(task_id=trace.task_id, rank=self._context.rank, traces=events))

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
            task_kind=self._kind.task_kind,
            tags=[self._kind.tag, *tags],
            attrs=attrs,
        )
