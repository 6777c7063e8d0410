"""The record of a runner: task table, recorder, milestones and status, with a test clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from skulkd.runner import protocol
from skulkd.runner.protocol import MlxMemoryReading, PhaseEntry
from skulkd.wire.base import Memory
from skulkd.wire.diagnostics import MlxMemorySnapshot, RunnerPhase
from skulkd.wire.ids import TaskId
from skulkd.wire.runners import RunnerFailed, RunnerIdle, RunnerLoading, RunnerReady, RunnerRunning
from skulkd.wire.tasks import TaskStatus
from skulkd.wire.timeline import RunnerCompute, RunnerStanding
from skulkd.worker.diagnostics import RunnerIdentity, RunnerRecord
from skulkd.worker.flight_recorder import ENTRIES, MAX_ENTRY_BYTES, SIZES
from skulkd.worker.task_stream import TaskEnded
from skulkd.worker.task_table import REMEMBERED, TaskTable
from tests.worker.rig import NODE, a_request, an_instance

INSTANCE = an_instance()
RUNNER, SHARD = next(iter(INSTANCE.shard_assignments.runner_to_shard.items()))


class Time:
    """Monotonic and wall clock that move together."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def clock(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 1, 2, tzinfo=UTC) + timedelta(seconds=self.seconds)


@pytest.fixture
def time() -> Time:
    return Time()


class Watched(RunnerRecord):
    """A record with the task table that its owner would have."""

    def __init__(self, time: Time) -> None:
        identity = RunnerIdentity(NODE, INSTANCE.instance_id, RUNNER, SHARD)
        super().__init__(identity, time.clock, time.now)
        self.tasks = TaskTable(lambda _event: None, self.milestone, time.clock)

    def shown(self) -> RunnerStanding:
        return self.diagnostics(self.tasks)


@pytest.fixture
def record(time: Time) -> Watched:
    return Watched(time)


def a_phase(record: Watched, phase: RunnerPhase, event: str = "enter", **more: Any) -> Any:
    memory = more.pop("memory", None)
    visible: RunnerPhase = more.pop("visible", phase)
    entry = PhaseEntry(at=record.stamp(), phase=phase, event=event, attrs={}, memory=memory)
    return protocol.Phase(entry=entry, phase=visible, **more)


# Tasks


def table_with(*statuses: TaskStatus) -> tuple[TaskTable, TaskId]:
    table = TaskTable(lambda _event: None, lambda _name, _detail: None, lambda: 7.0)
    task = a_request(INSTANCE.instance_id, "x")
    table.add(task)
    for status in statuses:
        table.update(protocol.TaskStatus(task_id=task.task_id, status=status))
    return table, task.task_id


def test_a_task_is_pending_until_it_is_acknowledged() -> None:
    table, task_id = table_with()
    assert table.pending_ids == [task_id]
    table.acknowledge(task_id)
    assert table.pending_ids == []
    assert [entry.task.task_id for entry in table.open] == [task_id]


@pytest.mark.parametrize(
    ("status", "completed", "cancelled"),
    [("Complete", 1, False), ("Failed", 0, False), ("TimedOut", 0, False), ("Cancelled", 0, True)],
)
def test_an_ended_task_is_counted_once(status: TaskStatus, completed: int, cancelled: bool) -> None:
    table, task_id = table_with("Running", status, status)
    assert table.open == ()
    assert table.completed_count == completed
    assert (task_id in table.cancelled_ids) is cancelled


def test_a_task_in_progress_shows_its_current_status() -> None:
    table, task_id = table_with("Running")
    (shown,) = table.in_progress(RUNNER, SHARD.model_card.model_id)
    assert (shown.task_id, shown.task_status) == (task_id, "Running")


def test_the_time_in_the_queue_is_not_a_duration_of_a_request(time: Time) -> None:
    """Else a full queue would count twice in the time after which clients come back."""
    table = TaskTable(lambda _event: None, lambda _name, _detail: None, time.clock)
    for _ in range(40):
        task = a_request(INSTANCE.instance_id, "x")
        table.add(task)
        time.seconds += 10.0
        table.push(protocol.Output(task_id=task.task_id, queued_s=8.0), 1)
        table.update(protocol.TaskStatus(task_id=task.task_id, status="Complete"))
    assert table.mean_s == pytest.approx(2.0, abs=0.01)


def test_ids_do_not_pile_up() -> None:
    table, _ = table_with("Complete")
    for _ in range(REMEMBERED + 10):
        task = a_request(INSTANCE.instance_id, "x")
        table.add(task)
        table.request_cancel(task.task_id)
        table.update(protocol.TaskStatus(task_id=task.task_id, status="Cancelled"))
    assert len(table.cancelled_ids) == REMEMBERED
    assert table.request_cancel(task.task_id) == "already_cancelled"


def test_open_tasks_end_with_the_runner() -> None:
    table, task_id = table_with()
    table.close(TaskEnded("Failed"))
    assert table.open == ()
    assert table.request_cancel(task_id) == "already_completed"


# Status


def test_the_time_in_a_status_begins_with_its_kind(record: Watched, time: Time) -> None:
    record.set_status(RunnerLoading(layers_loaded=1, total_layers=8))
    time.seconds = 10
    record.set_status(RunnerLoading(layers_loaded=2, total_layers=8))
    shown = record.shown()
    assert shown.seconds_in_status == 10
    assert shown.status_since == "2026-01-02T00:00:00.000000+00:00"


def test_a_failure_that_we_conclude_resets_the_time(record: Watched, time: Time) -> None:
    record.set_status(RunnerReady())
    time.seconds = 100
    record.set_status(RunnerFailed(error_message="gone"))
    time.seconds = 101
    shown = record.shown()
    assert shown.status_kind == "RunnerFailed"
    assert shown.seconds_in_status == 1
    assert shown.status_since == "2026-01-02T00:01:40.000000+00:00"


def test_a_new_process_starts_with_a_clean_slate_and_the_old_record(
    record: Watched, time: Time
) -> None:
    record.started(11)
    record.message_received(a_phase(record, "decode_stream"), 100)
    record.ended(-9)
    assert (record.shown().process_alive, record.shown().exit_code) == (False, -9)
    record.starting()
    shown = record.shown()
    assert (shown.pid, shown.exit_code, shown.phase) == (None, None, "created")
    assert shown.status_kind == "RunnerIdle"
    assert [entry.phase for entry in shown.flight_recorder] == ["decode_stream"]


# Phases


def test_the_phase_is_the_one_that_goes_on_and_its_time_begins_with_its_name(
    record: Watched, time: Time
) -> None:
    record.message_received(a_phase(record, "decode_stream"), 100)
    time.seconds = 5
    record.message_received(
        a_phase(record, "parser", "exit", visible="decode_stream", detail="batch"), 100
    )
    shown = record.shown()
    assert (shown.phase, shown.phase_detail) == ("decode_stream", "batch")
    assert shown.seconds_in_phase == 5
    assert shown.phase_started_at == "2026-01-02T00:00:00.000000+00:00"
    assert shown.last_progress_at == "2026-01-02T00:00:05.000000+00:00"


def test_the_active_task_is_cleared_with_its_end(record: Watched) -> None:
    task = a_request(INSTANCE.instance_id, "x")
    record.tasks.add(task)
    record.message_received(
        a_phase(record, "decode_stream", task_id=task.task_id, command_id=task.command_id), 100
    )
    shown = record.shown()
    assert (shown.active_task_id, shown.active_command_id) == (task.task_id, task.command_id)
    record.tasks.close(TaskEnded("Complete"))
    shown = record.shown()
    assert (shown.active_task_id, shown.active_command_id) == (None, None)


def test_the_last_memory_reading_stays(record: Watched) -> None:
    memory = MlxMemoryReading("x", active=5, cache=6, peak=7)
    record.message_received(a_phase(record, "load_model", memory=memory), 100)
    record.message_received(a_phase(record, "warmup"), 100)
    assert record.shown().last_mlx_memory == MlxMemorySnapshot(
        generated_at="x",
        active=Memory.of(5),
        cache=Memory.of(6),
        peak=Memory.of(7),
        source="mlx.core",
    )


def test_the_recorder_keeps_the_last_entries(record: Watched) -> None:
    for number in range(ENTRIES + 5):
        record.message_received(a_phase(record, "decode_stream", f"step {number}"), 100)
    entries = record.shown().flight_recorder
    assert [entry.event for entry in entries] == [f"step {n}" for n in range(5, ENTRIES + 5)]


def test_an_entry_keeps_the_process_it_is_of(record: Watched) -> None:
    for pid in (11, 12):
        record.starting()
        record.started(pid)
        record.message_received(a_phase(record, "warmup"), 100)
    assert [entry.context.pid for entry in record.shown().flight_recorder] == [11, 12]


def test_an_entry_of_absurd_size_is_not_kept(record: Watched) -> None:
    record.message_received(a_phase(record, "decode_stream"), MAX_ENTRY_BYTES + 1)
    assert record.shown().flight_recorder == []


def test_a_cancel_is_on_record_and_does_not_hide_the_phase(record: Watched) -> None:
    task = a_request(INSTANCE.instance_id, "x")
    record.tasks.add(task)
    record.message_received(a_phase(record, "prefill_stream"), 100)
    record.cancel_requested(task)
    shown = record.shown()
    assert shown.phase == "prefill_stream"
    last = shown.flight_recorder[-1]
    assert (last.phase, last.event) == ("cancel_requested", "supervisor_cancel_requested")
    assert (last.task_id, last.command_id) == (task.task_id, task.command_id)


# Milestones


def test_tokens_and_tasks_do_not_push_out_how_the_runner_came_here(record: Watched) -> None:
    record.starting()
    record.started(11)
    for _ in range(200):
        task = a_request(INSTANCE.instance_id, "x")
        record.tasks.add(task)
        record.set_status(RunnerRunning())
        for _ in range(3):
            record.message_received(protocol.Output(task_id=task.task_id), 100)
            record.message_received(a_phase(record, "decode_stream"), 100)
        record.set_status(RunnerReady())
        record.tasks.close(TaskEnded("Complete"))
    shown = record.shown().milestones
    names = [milestone.name for milestone in shown]
    assert names[:4] == [
        "supervisor_created",
        "process_start_requested",
        "process_started",
        "task_sent",
    ]
    assert len(shown) <= sum(SIZES.values()) == 32
    assert shown[2].detail == "pid=11"


def test_events_are_named_as_clients_of_the_reference_know_them(
    record: Watched, time: Time
) -> None:
    assert record.shown().last_event_type is None
    time.seconds = 3
    record.message_received(protocol.Status(status=RunnerIdle()), 10)
    shown = record.shown()
    assert shown.last_event_type == "RunnerStatusUpdated"
    assert shown.last_event_received_at == "2026-01-02T00:00:03.000000+00:00"


def test_measured_spans_are_an_event_like_any_other(record: Watched) -> None:
    """A runner that traces must not end its supervisor."""
    record.message_received(protocol.TaskTrace(task_id=TaskId("t1"), rank=0, traces=[]), 10)
    assert record.shown().last_event_type == "TracesCollected"


def test_a_pulse_tells_where_the_work_stands_and_is_no_progress(
    record: Watched, time: Time
) -> None:
    assert record.shown().live is None
    heard_at = record.heard_at
    time.seconds = 10.0
    record.message_received(
        protocol.Pulse(busy=True, step=3, moves=7, site="mx_barrier", site_s=2.0), 40
    )
    time.seconds = 13.0
    record.message_received(
        protocol.Pulse(busy=True, step=3, moves=7, site="mx_barrier", site_s=5.0), 40
    )
    time.seconds = 14.0
    live = record.shown().live
    assert live is not None
    assert (live.site, live.site_seconds, live.silent_seconds) == ("mx_barrier", 6.0, 1.0)
    assert live.still_seconds == 4.0
    assert record.heard_at == heard_at
    record.message_received(protocol.Pulse(busy=True, step=4, moves=7), 40)
    live = record.shown().live
    assert live is not None
    assert (live.step, live.still_seconds, live.site_seconds) == (4, 0.0, 0.0)
    record.starting()
    assert record.shown().live is None


def test_how_long_a_task_was_not_taken_is_known(record: Watched, time: Time) -> None:
    task = a_request(INSTANCE.instance_id, "hello")
    record.tasks.add(task)
    time.seconds = 6.0
    assert record.shown().pending_seconds == 6.0
    record.tasks.acknowledge(task.task_id)
    assert record.shown().pending_seconds is None


def test_the_end_of_a_process_is_on_record_with_whom_it_is_blamed_on(record: Watched) -> None:
    record.recorder.add(a_phase(record, "decode_stream"), 100, record.context)
    record.process_ended("stopped by a signal; killed by the supervisor", "CULPRIT")
    shown = record.shown()
    last = shown.flight_recorder[-1]
    assert (last.phase, last.event, last.attrs) == ("error", "runner_ended", {"blame": "culprit"})
    assert shown.phase == "decode_stream"


def test_what_a_process_computes_with_is_known_until_the_next_one_starts(
    record: Watched,
) -> None:
    compute = RunnerCompute(blas="bundled OpenBLAS", gflops=45.5, cores=2)
    record.message_received(protocol.Computing(compute=compute), 10)
    assert record.shown().compute == compute
    record.starting()
    assert record.shown().compute is None
