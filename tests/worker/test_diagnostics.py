"""What diagnostics say about runners, alive and dead."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.runners import RunnerFailed, RunnerReady
from tests.worker.rig import (
    PATIENT,
    QUICK,
    a_request,
    eventually,
    first_text,
    is_running,
    log_text,
    read_all,
    ready,
    running,
    stand_in,
)


async def test_the_record_of_a_runner_at_work_is_complete(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        task = a_request(instance_id, "hang")
        stream = await rig.worker.submit(task, GenerationOptions())
        await first_text(stream)
        record = rig.record(instance_id)
        assert record.pid in rig.worker.runner_pids()
        assert record.process_alive
        assert record.exit_code is None
        assert record.status_kind == "RunnerRunning"
        assert record.phase == "decode_stream"
        assert (record.active_task_id, record.active_command_id) == (
            task.task_id,
            task.command_id,
        )
        (open_task,) = record.in_progress_tasks
        assert open_task.task_status == "Running"
        assert open_task.task_kind == "TextGeneration"
        assert open_task.command_id == task.command_id
        assert record.pending_task_ids == []
        assert record.completed_task_count == 2
        assert record.last_event_type == "ChunkGenerated"
        assert record.last_task_sent_at is not None
        await stream.aclose()
        await rig.idle(instance_id)
        record = rig.record(instance_id)
        assert (record.active_task_id, record.active_command_id) == (None, None)
        assert record.in_progress_tasks == []
        entry = record.flight_recorder[-1]
        assert (entry.phase, entry.detail) == ("cancel_requested", task.task_id)
        assert record.phase == "decode_stream"


async def test_one_dead_runner_does_not_blank_the_record_of_another(tmp_path: Path) -> None:
    options = replace(PATIENT, crashes=replace(PATIENT.crashes, first_delay_s=3600))
    async with running(tmp_path, stand_in(), options) as rig:
        dead, alive = rig.place(), rig.place()
        await rig.reaches(dead, RunnerReady)
        await rig.reaches(alive, RunnerReady)
        await read_all(await rig.ask(dead, "signal 9"))
        await rig.reaches(dead, RunnerFailed)
        assert rig.record(dead).exit_code == -9
        assert rig.record(alive).process_alive


async def test_the_recorder_keeps_what_a_dead_process_did(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        first = rig.record(instance_id).pid
        await read_all(await rig.ask(instance_id, "crash 70"))
        await rig.reaches(instance_id, RunnerReady)
        second = rig.record(instance_id).pid
        pids = [entry.context.pid for entry in rig.record(instance_id).flight_recorder]
        assert set(pids) == {first, second}
        assert "decode_stream" in [
            entry.phase
            for entry in rig.record(instance_id).flight_recorder
            if entry.context.pid == first
        ]


async def test_output_of_a_runner_is_in_its_log_file(tmp_path: Path) -> None:
    async with running(tmp_path / "logs", stand_in()) as rig:
        instance_id = await ready(rig)
        record = rig.record(instance_id)
        await read_all(await rig.ask(instance_id, "crash 70"))
        await rig.reaches(instance_id, RunnerReady)
        assert f"stand-in {record.pid} boots" in log_text(tmp_path / "logs")


async def test_children_of_a_runner_do_not_outlive_it(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in("with child"), QUICK) as rig:
        instance_id = await ready(rig)
        found = await eventually(
            lambda: re.search(r"^child (\d+)$", log_text(tmp_path), re.MULTILINE), "the child's id"
        )
        assert is_running(int(found[1]))
        rig.delete(instance_id)
        await eventually(lambda: not is_running(int(found[1])), "the child to end")
