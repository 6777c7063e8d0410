"""Requests to a runner that behaves: answers, cancels, refusals, slow readers, floods."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics
from skulkd.wire.events import RunnerStatusUpdated, TaskCreated, TaskDeleted, TaskStatusUpdated
from skulkd.wire.ids import InstanceId, TaskId
from skulkd.wire.runners import RunnerReady, RunnerRunning, RunnerShutdown
from skulkd.worker.refusals import (
    DuplicateTask,
    NoSuchInstance,
    NoSuchTask,
    NotReady,
    QueueFull,
    RequestTooLarge,
)
from tests.worker.rig import (
    PATIENT,
    a_request,
    eventually,
    first_text,
    read_all,
    ready,
    running,
    stand_in,
)


async def test_a_placed_model_becomes_ready_and_answers(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        text, ended = await read_all(await rig.ask(instance_id, "say 3"))
        assert text == "0 1 2 "
        assert ended.status == "Complete"
        assert ended.usage is not None
        assert ended.usage.completion_tokens == 3
        assert not ended.retryable
        await rig.idle(instance_id)
        told = [e.runner_status for e in rig.events if isinstance(e, RunnerStatusUpdated)]
        assert all(one != other for one, other in pairwise(told))


async def test_a_request_is_in_the_state_while_it_runs_and_not_after(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        stream = await rig.ask(instance_id, "hang")
        await first_text(stream)
        task = rig.replica.state.tasks[stream.task_id]
        assert task.task_status == "Running"
        assert isinstance(await rig.reaches(instance_id, RunnerRunning), RunnerRunning)
        rig.worker.cancel(stream.task_id)
        _, ended = await read_all(stream)
        assert ended.status == "Cancelled"
        assert stream.task_id not in rig.replica.state.tasks
        mine = [e for e in rig.events if getattr(e, "task_id", None) == stream.task_id]
        kinds = [type(event) for event in mine]
        assert kinds == [TaskCreated, TaskStatusUpdated, TaskStatusUpdated, TaskDeleted]


async def test_a_second_end_of_the_same_task_is_not_told_again(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        await read_all(await rig.ask(instance_id, "say 1"))
        await eventually(
            lambda: (
                "terminal_status_suppressed"
                in [milestone.name for milestone in rig.record(instance_id).milestones]
            ),
            "the second report",
        )
        assert rig.record(instance_id).completed_task_count == 3


async def test_a_refused_request_ends_with_the_runners_reason(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        _, ended = await read_all(await rig.ask(instance_id, "fail"))
        assert (ended.status, ended.error_type) == ("Failed", "invalid_request_error")
        assert ended.error_message == "no such thing"
        assert not ended.retryable


async def test_two_instances_answer_side_by_side(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        one, other = rig.place(), rig.place()
        await rig.reaches(one, RunnerReady)
        await rig.reaches(other, RunnerReady)
        hanging = await rig.ask(one, "hang")
        text, _ = await read_all(await rig.ask(other, "say 2"))
        assert text == "0 1 "
        assert len(rig.worker.runner_pids()) == 2
        await hanging.aclose()


async def test_closing_a_stream_cancels_its_task(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        stream = await rig.ask(instance_id, "hang")
        await first_text(stream)
        await stream.aclose()
        await rig.idle(instance_id)
        assert rig.record(instance_id).cancelled_task_ids == [stream.task_id]
        assert stream.task_id not in rig.replica.state.tasks


async def test_cancelling_says_what_has_become_of_the_task(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        stream = await rig.ask(instance_id, "hang")
        done = await rig.ask(instance_id, "say 1")
        await read_all(done)
        assert rig.worker.cancel(done.task_id) == "already_completed"
        assert rig.worker.cancel(stream.task_id) == "cancel_requested"
        assert rig.worker.cancel(stream.task_id) == "already_cancelled"
        await read_all(stream)
        assert rig.worker.cancel(stream.task_id) == "already_cancelled"
        with pytest.raises(NoSuchTask):
            rig.worker.cancel(TaskId("ghost"))


async def test_requests_are_refused_until_the_runner_is_ready(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in("silent")) as rig:
        with pytest.raises(NoSuchInstance):
            await rig.ask(InstanceId("ghost"), "say 1")
        instance_id = rig.place()
        await eventually(rig.worker.runner_pids, "a process")
        with pytest.raises(NotReady) as caught:
            await rig.ask(instance_id, "say 1")
        assert caught.value.status_kind == "RunnerIdle"


async def test_a_full_queue_refuses_with_a_time_to_come_back(tmp_path: Path) -> None:
    options = replace(
        PATIENT, queue_limit=2, runner=PATIENT.runner.model_copy(update={"max_concurrent": 1})
    )
    async with running(tmp_path, stand_in(), options) as rig:
        instance_id = await ready(rig)
        streams = [await rig.ask(instance_id, "hang") for _ in range(3)]
        with pytest.raises(QueueFull) as caught:
            await rig.ask(instance_id, "say 1")
        assert caught.value.waiting == 2
        assert 1 <= caught.value.retry_after_s <= 60
        for stream in streams:
            await stream.aclose()
        await rig.idle(instance_id)
        await read_all(await rig.ask(instance_id, "say 1"))


async def test_a_request_too_large_for_a_message_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        with pytest.raises(RequestTooLarge):
            await rig.ask(instance_id, "x" * 17_000_000)
        assert (await read_all(await rig.ask(instance_id, "say 1")))[0] == "0 "


async def test_a_task_that_is_open_is_not_taken_twice(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        task = a_request(await ready(rig), "hang")
        stream = await rig.worker.submit(task, GenerationOptions())
        with pytest.raises(DuplicateTask):
            await rig.worker.submit(task, GenerationOptions())
        await stream.aclose()


async def test_endless_words_of_a_runner_are_cut(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        _, ended = await read_all(await rig.ask(await ready(rig), "fail 1000000"))
        assert 1000 < len(ended.error_message or "") < 3000


async def test_a_queue_of_none_still_serves_the_places(tmp_path: Path) -> None:
    options = replace(PATIENT, queue_limit=0)
    async with running(tmp_path, stand_in(), options) as rig:
        instance_id = await ready(rig)
        assert (await read_all(await rig.ask(instance_id, "say 1")))[0] == "0 "


async def test_an_unread_answer_is_cut_off_and_the_others_go_on(tmp_path: Path) -> None:
    options = replace(PATIENT, stream_bytes=20_000)
    async with running(tmp_path, stand_in(), options) as rig:
        instance_id = await ready(rig)
        unread = await rig.ask(instance_id, "flood")
        await eventually(
            lambda: unread.task_id in rig.record(instance_id).cancelled_task_ids, "the cut"
        )
        text, ended = await read_all(await rig.ask(instance_id, "say 2"))
        assert (text, ended.status) == ("0 1 ", "Complete")
        await rig.idle(instance_id)
        text, ended = await read_all(unread)
        assert (ended.status, ended.error_type) == ("Failed", "slow_reader")
        assert 0 < len(text) <= 20_000
        assert unread.task_id not in rig.replica.state.tasks


def changes(record: RunnerSupervisorDiagnostics) -> int:
    """How often a flickering runner has changed its status."""
    numbers = [int(e.event) for e in record.flight_recorder if e.event.isdigit()]
    return max(numbers, default=0)


async def test_a_flood_of_reports_stalls_nobody_and_fills_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        loud, quiet = rig.place(), rig.place()
        await rig.reaches(loud, RunnerReady)
        await rig.reaches(quiet, RunnerReady)
        flicker = await rig.ask(loud, "flicker")
        text, _ = await read_all(await rig.ask(quiet, "say 200"))
        assert text.endswith("199 ")
        await eventually(lambda: changes(rig.record(loud)) > 1000, "a flood")
        told = [e for e in rig.events if isinstance(e, RunnerStatusUpdated)]
        assert len(told) < changes(rig.record(loud)) / 2
        record = rig.record(loud)
        assert len(record.flight_recorder) == 128
        assert len(record.milestones) <= 32
        assert "process_started" in [milestone.name for milestone in record.milestones]
        await flicker.aclose()


async def test_a_runner_that_never_reads_takes_no_more_than_it_may(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        pid = rig.record(instance_id).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        large = "say " + "1" * 7_000_000
        with pytest.raises(NotReady) as caught:
            for _ in range(9):
                await rig.ask(instance_id, large)
        assert "takes no messages" in str(caught.value)


async def test_a_status_that_the_state_lost_is_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skulkd.worker.slot._REPUBLISH_S", 0.05)
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        runner_id = rig.record(instance_id).runner_id
        # As when clusters meet: the instance is kept, and what was said of its runner is not.
        rig.publish(RunnerStatusUpdated(runner_id=runner_id, runner_status=RunnerShutdown()))
        assert rig.status(instance_id) is None
        await rig.reaches(instance_id, RunnerReady)
