"""The recorder: what shows now, what is written, what is never waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from skulkd.runner.protocol import MlxMemoryReading, Phase
from skulkd.runner.recording.recorder import NO_OWNER, Owner, PhaseRecorder, plain_attributes
from skulkd.wire.diagnostics import RunnerDiagnosticContext
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, RunnerId, TaskId

TASK = Owner(TaskId("task-1"), CommandId("command-1"))
OTHER = Owner(TaskId("task-2"))


@dataclass
class Sink:
    offered: list[Phase] = field(default_factory=list)
    delivered: list[Phase] = field(default_factory=list)

    def offer(self, phase: Phase) -> None:
        self.offered.append(phase)

    def deliver(self, phase: Phase) -> bool:
        self.delivered.append(phase)
        return True


def a_context() -> RunnerDiagnosticContext:
    return RunnerDiagnosticContext(
        node_id=NodeId("n"),
        runner_id=RunnerId("r"),
        pid=1,
        instance_id=InstanceId("i"),
        model_id=ModelId("m"),
        rank=0,
        world_size=1,
        start_layer=0,
        end_layer=8,
        n_layers=8,
    )


def a_recorder(sink: Sink) -> PhaseRecorder:
    return PhaseRecorder(
        context=a_context(),
        sink=sink,
        read_memory=lambda: MlxMemoryReading("now", 1, 2, 3),
        now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
    )


def written(sink: Sink) -> list[tuple[str, str, str]]:
    """(phase of the entry, event, phase that shows)."""
    return [(p.entry.phase, p.entry.event, p.phase) for p in sink.offered]


def test_an_inner_phase_gives_way_to_the_outer_one_when_it_ends() -> None:
    sink = Sink()
    recorder = a_recorder(sink)
    with recorder.span("warmup"), recorder.span("prefill_barrier"):
        pass
    assert written(sink) == [
        ("warmup", "enter", "warmup"),
        ("prefill_barrier", "enter", "prefill_barrier"),
        ("prefill_barrier", "exit", "warmup"),
        ("warmup", "exit", "created"),
    ]


def test_overlapping_spans_show_the_newest_that_is_still_open() -> None:
    sink = Sink()
    recorder = a_recorder(sink)
    decode = recorder.enter("decode_stream", owner=TASK)
    prefill = recorder.enter("prefill_stream", owner=OTHER)
    recorder.leave(decode)
    assert (recorder.visible.phase, recorder.visible.owner) == ("prefill_stream", OTHER)
    recorder.leave(prefill)
    assert recorder.visible.phase == "created"


def test_a_point_moves_the_phase_only_outside_every_span() -> None:
    sink = Sink()
    recorder = a_recorder(sink)
    recorder.point("idle", "runner_ready")
    with recorder.span("decode_stream"):
        recorder.point("task_submission", "task_acknowledged", "TextGeneration", owner=TASK)
    assert written(sink)[0] == ("idle", "runner_ready", "idle")
    assert written(sink)[2] == ("task_submission", "task_acknowledged", "decode_stream")


def test_a_cancel_mark_never_becomes_the_phase() -> None:
    sink = Sink()
    recorder = a_recorder(sink)
    recorder.point("idle", "runner_ready")
    recorder.point("cancel_requested", "batch_cancel_pipe_observed", owner=TASK)
    assert written(sink)[-1] == ("cancel_requested", "batch_cancel_pipe_observed", "idle")


def test_a_failure_is_written_instead_of_the_exit_and_goes_on() -> None:
    sink = Sink()
    recorder = a_recorder(sink)
    with pytest.raises(ValueError, match="bad"), recorder.span("load_model", owner=TASK):
        raise ValueError("bad")
    entry = sink.offered[-1].entry
    assert (entry.phase, entry.event, entry.detail) == ("error", "exception", "ValueError: bad")
    assert entry.task_id == TASK.task_id
    assert entry.memory is not None
    assert recorder.visible.phase == "created"


def test_an_abandoned_span_leaves_no_exit() -> None:
    sink = Sink()
    recorder = a_recorder(sink)
    span = recorder.enter("prefill_stream", owner=TASK)
    recorder.abandon(span)
    assert [event for _, event, _ in written(sink)] == ["enter"]
    assert recorder.visible.owner == NO_OWNER


def test_memory_is_read_only_where_it_is_wanted() -> None:
    sink = Sink()
    recorder = a_recorder(sink)
    recorder.point("idle", "runner_ready", memory=True)
    recorder.point("completion", "done")
    assert [p.entry.memory is not None for p in sink.offered] == [True, False]


def test_a_breadcrumb_names_where_the_runner_was_and_wants_an_answer() -> None:
    sink = Sink()
    recorder = a_recorder(sink)
    with recorder.span("decode_stream", "batch_decode", owner=TASK, memory=True):
        assert recorder.breadcrumb("pipeline_eval_timeout", "a step", limit_s=60.0)
        assert recorder.breadcrumb("again", "a step")
    first, second = sink.delivered
    assert (first.sequence, second.sequence) == (1, 2)
    assert (first.entry.phase, first.entry.task_id) == ("decode_stream", TASK.task_id)
    assert first.entry.attrs == {"limit_s": 60.0}
    assert first.entry.memory is None


def test_attributes_are_made_plain() -> None:
    given = {"a": 1, "b": None, "c": [1, "x"], "d": True, "e": ("y",), "f": NO_OWNER}
    assert plain_attributes(given) == {
        "a": 1,
        "c": ["1", "x"],
        "d": True,
        "e": ["y"],
        "f": str(NO_OWNER),
    }
