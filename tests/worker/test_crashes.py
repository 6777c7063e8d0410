"""Runners that crash: what clients read, what the state says, and when it starts again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from skulkd.wire.events import TaskFailed
from skulkd.wire.runners import RunnerFailed, RunnerReady
from skulkd.worker.refusals import NoSuchInstance, NotReady
from tests.worker.rig import (
    PATIENT,
    MemoryLibrary,
    eventually,
    log_text,
    read_all,
    ready,
    running,
    stand_in,
    stand_ins,
)


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        pytest.param("signal 9", "signal=9 (SIGKILL)", id="signal"),
        pytest.param("crash 70", "exitcode=70", id="exit code"),
        pytest.param("crash 42", "exitcode=42", id="unknown exit code"),
        pytest.param("crash 0", "exitcode=0", id="clean but not asked"),
        pytest.param("garbage", "sent what is no message", id="garbage"),
        pytest.param("oversize", "sent what is no message", id="frame too large"),
    ],
)
async def test_a_crash_fails_its_requests_by_name_and_the_runner_comes_back(
    tmp_path: Path, command: str, cause: str
) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        first = rig.record(instance_id).pid
        bystander = await rig.ask(instance_id, "hang")
        for stream in (await rig.ask(instance_id, command), bystander):
            _, ended = await read_all(stream)
            assert (ended.status, ended.error_type) == ("Failed", "runner_crashed")
            assert cause in (ended.error_message or "")
            assert "during decode_stream" in (ended.error_message or "")
            assert ended.retryable
            assert TaskFailed in [
                type(e) for e in rig.events if getattr(e, "task_id", None) == stream.task_id
            ]
        await rig.reaches(instance_id, RunnerReady)
        assert rig.record(instance_id).pid != first
        assert (await read_all(await rig.ask(instance_id, "say 1")))[0] == "0 "


async def test_the_state_says_failed_between_crash_and_restart(tmp_path: Path) -> None:
    options = replace(PATIENT, crashes=replace(PATIENT.crashes, first_delay_s=3600))
    async with running(tmp_path, stand_in(), options) as rig:
        instance_id = await ready(rig)
        await read_all(await rig.ask(instance_id, "signal 11"))
        failed = await rig.reaches(instance_id, RunnerFailed)
        assert failed.error_message == "Terminated (signal=11 (SIGSEGV)) during decode_stream"
        with pytest.raises(NotReady) as caught:
            await rig.ask(instance_id, "say 1")
        assert "SIGSEGV" in str(caught.value)
        record = rig.record(instance_id)
        assert (record.process_alive, record.exit_code) == (False, -11)
        assert record.status_kind == "RunnerFailed"


async def test_three_crashes_open_the_circuit_until_an_operator_acts(tmp_path: Path) -> None:
    boots = ["crash in load"] * 3 + ["well"]
    async with running(tmp_path, stand_ins(tmp_path / "boots", *boots)) as rig:
        instance_id = rig.place()
        reason = await rig.fails(instance_id, "crashed too often")
        assert "exitcode=70" in reason
        assert "during load_model" in reason
        starts = [m for m in rig.record(instance_id).milestones if m.name == "process_started"]
        assert len(starts) == 3
        assert rig.worker.runner_pids() == frozenset()
        rig.worker.restart(instance_id)
        await rig.reaches(instance_id, RunnerReady)
        # What serves is replaced as well: it may hang in a way that nobody sees.
        old = rig.worker.runner_pids()
        rig.worker.restart(instance_id)
        await rig.reaches(instance_id, RunnerFailed)
        await rig.reaches(instance_id, RunnerReady)
        assert not rig.worker.runner_pids() & old


async def test_deleting_what_was_given_up_forgets_it(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in("bad model")) as rig:
        instance_id = rig.place()
        await rig.fails(instance_id, "would not help")
        rig.delete(instance_id)
        await eventually(lambda: not rig.worker.diagnostics(), "the record to go")
        with pytest.raises(NoSuchInstance):
            rig.worker.restart(instance_id)


@pytest.mark.parametrize(
    ("boot", "reason"),
    [
        pytest.param("wedge", "gpu-wedge-deadline", id="wedged in warm-up"),
        pytest.param("bad model", "model.safetensors is cut off", id="bad model"),
    ],
)
async def test_what_a_restart_cannot_cure_is_not_restarted(
    tmp_path: Path, boot: str, reason: str
) -> None:
    async with running(tmp_path, stand_in(boot)) as rig:
        instance_id = rig.place()
        assert reason in await rig.fails(instance_id, "would not help")
        starts = [m for m in rig.record(instance_id).milestones if m.name == "process_started"]
        assert len(starts) == 1


async def test_breadcrumbs_before_a_deliberate_exit_are_kept_and_acknowledged(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, stand_in("wedge")) as rig:
        instance_id = rig.place()
        await rig.reaches(instance_id, RunnerFailed)
        entries = rig.record(instance_id).flight_recorder
        own = [entry for entry in entries if entry.event != "runner_ended"]
        assert (own[-1].phase, own[-1].event) == ("warmup", "deadline")
        assert "breadcrumb is {'Ack': {'sequence': 7}}" in log_text(tmp_path)


async def test_the_last_words_of_a_talkative_runner_are_heard(tmp_path: Path) -> None:
    async with running(tmp_path, stand_in()) as rig:
        instance_id = await ready(rig)
        await read_all(await rig.ask(instance_id, "burst 5000"))
        events = [entry.event for entry in rig.record(instance_id).flight_recorder]
        assert "last words" in events


async def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    options = replace(PATIENT, crashes=replace(PATIENT.crashes, first_delay_s=3600))
    async with running(tmp_path, stand_in("exit 1 at once"), options) as rig:
        reason = await rig.fails(rig.place(), "exitcode=1, before its first report")
        assert "ModuleNotFoundError: no such module" in reason


async def test_a_model_without_files_is_not_started(tmp_path: Path) -> None:
    library = MemoryLibrary(paths={}, problems={"skulk/stand-in": "model.safetensors is cut off"})
    async with running(tmp_path, stand_in(), library=library) as rig:
        reason = await rig.fails(rig.place(), "would not help")
        assert reason.startswith("Not started: staging-failed: model.safetensors is cut off.")
