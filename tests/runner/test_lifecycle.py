"""From start to stop: the order of reports, the phases, and orderly ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skulkd.runner.exits import ExitCode
from skulkd.runner.protocol import (
    Ack,
    GenerationOptions,
    Output,
    Phase,
    Status,
    TaskAcknowledged,
    TaskStatus,
)
from skulkd.wire.ids import RunnerId, TaskId
from skulkd.wire.runners import RunnerIdle, RunnerLoaded, RunnerLoading, RunnerReady
from skulkd.wire.tasks import ConnectToGroup, Shutdown, StartWarmup
from tests.runner.runner_process import INSTANCE, Runner

NO_END = GenerationOptions(logit_bias={"2": -100.0})


def reports(runner: Runner) -> list[str]:
    """Statuses and task reports, in order, as short texts."""
    said = []
    for message in runner.heard:
        if isinstance(message, Status):
            said.append(type(message.status).__name__)
        elif isinstance(message, TaskStatus):
            said.append(f"{message.task_id} {message.status}")
        elif isinstance(message, TaskAcknowledged):
            said.append(f"{message.task_id} acknowledged")
    return said


def marks(phases: list[Phase]) -> list[tuple[str, str, str | None]]:
    return [(p.entry.phase, p.entry.event, p.entry.detail) for p in phases]


def test_a_spawned_runner_lives_from_idle_to_shutdown(spawned: Runner, tiny: Path) -> None:
    spawned.configure(tiny)
    spawned.become_ready()
    task = spawned.ask("hello", NO_END, max_output_tokens=3)
    spawned.until(Status, lambda m: isinstance(m.status, RunnerReady))
    assert spawned.stop() == ExitCode.CLEAN
    loading = ["RunnerLoading"] * 8
    assert reports(spawned) == [
        "RunnerIdle",
        *("load Running", "RunnerLoading", "load acknowledged", *loading, "load Complete"),
        "RunnerLoaded",
        *("warmup Running", "RunnerWarmingUp", "warmup acknowledged", "warmup Complete"),
        "RunnerReady",
        *(f"{task} Running", "RunnerRunning", f"{task} acknowledged", f"{task} Complete"),
        "RunnerReady",
        *("stop Running", "RunnerShuttingDown", "stop acknowledged", "stop Complete"),
        "RunnerShutdown",
    ]


def test_layers_are_counted_while_they_load(fork: Callable[[], Runner], tiny: Path) -> None:
    runner = fork()
    runner.configure(tiny)
    runner.load()
    runner.until(Status, lambda m: isinstance(m.status, RunnerLoaded))
    counts = [
        (m.status.layers_loaded, m.status.total_layers)
        for m in runner.heard
        if isinstance(m, Status) and isinstance(m.status, RunnerLoading)
    ]
    assert counts == [(number, 8) for number in range(9)]


def test_boot_is_written_to_the_recorder(fork: Callable[[], Runner], tiny: Path) -> None:
    runner = fork()
    runner.configure(tiny)
    runner.become_ready()
    runner.until(Phase, lambda m: m.entry.event == "runner_ready")
    assert marks(runner.entries()) == [
        ("created", "process_started", None),
        ("created", "blas_bound", "bundled OpenBLAS"),
        ("task_submission", "task_acknowledged", "LoadModel"),
        ("load_model", "enter", "load_mlx_items"),
        ("load_model", "exit", "load_mlx_items"),
        ("load_model", "loaded", "builder_complete"),
        ("task_submission", "task_acknowledged", "StartWarmup"),
        ("warmup", "enter", "warmup_generator"),
        ("warmup", "warmup_start", None),
        ("prefill_barrier", "enter", "warmup_pre_generation_barrier"),
        ("prefill_barrier", "exit", "warmup_pre_generation_barrier"),
        ("warmup", "enter", "warmup_mlx_generate"),
        ("warmup", "exit", "warmup_mlx_generate"),
        ("decode_barrier", "enter", "warmup_final_barrier"),
        ("decode_barrier", "exit", "warmup_final_barrier"),
        ("warmup", "exit", "warmup_generator"),
        ("idle", "runner_ready", None),
    ]
    loaded = next(p for p in runner.entries() if p.entry.event == "loaded")
    assert loaded.entry.memory is not None
    assert loaded.entry.memory.active > 1_000_000


def test_a_request_is_written_to_the_recorder(runner: Runner) -> None:
    task = runner.ask("hello", NO_END, max_output_tokens=30)
    runner.answer(task)
    runner.until(Phase, lambda m: m.entry.event == "kv_cache_add" and m.entry.task_id == task)
    own = marks(runner.entries(task))
    assert own == [
        ("task_submission", "task_acknowledged", "TextGeneration"),
        ("task_submission", "submit_text_generation", "1 messages, 0 tools, max 30"),
        ("prompt_build", "enter", "batch_apply_chat_template"),
        ("prompt_build", "exit", "batch_apply_chat_template"),
        ("prompt_build", "enter", "prompt_tokenization"),
        ("prompt_build", "exit", "prompt_tokenization"),
        ("prompt_build", "prompt_tokenized", None),
        ("prompt_build", "mlx_generate_start", None),
        ("task_submission", "batch_queue_admitted", None),
        ("kv_cache_lookup", "enter", "prefix_cache_lookup"),
        ("kv_cache_lookup", "exit", "prefix_cache_lookup"),
        ("kv_cache_lookup", "kv_cache_result", None),
        ("prefill_barrier", "enter", "prefill_mx_barrier"),
        ("prefill_barrier", "exit", "prefill_mx_barrier"),
        ("prefill_stream", "enter", "stream_generate_prefill"),
        ("prefill_stream", "exit", "stream_generate_prefill"),
        ("decode_wait_first_token", "enter", "stream_generate_first_token"),
        ("decode_wait_first_token", "exit", "stream_generate_first_token"),
        ("decode_stream", "enter", "batch_decode"),
        ("decode_stream", "batch_first_token", None),
        ("decode_stream", "decode_token_progress", None),
        ("decode_stream", "decode_token_progress", None),
        ("decode_stream", "exit", "batch_decode"),
        ("completion", "generation_complete", None),
        ("completion", "batch_decode_complete", None),
        ("kv_cache_lookup", "kv_cache_add", None),
    ]
    commands = {p.entry.command_id for p in runner.entries(task)}
    assert commands == {f"command-{task}"}


def test_a_joining_request_gives_way_to_decode_again(runner: Runner) -> None:
    """Leaving an inner phase shows the outer one, which the recorder entry does not name."""
    long = runner.ask("long", NO_END, max_output_tokens=120)
    runner.until(Phase, lambda m: m.entry.event == "batch_first_token")
    joined = runner.ask("join", NO_END, max_output_tokens=2)
    left = runner.until(
        Phase, lambda m: m.entry.task_id == joined and m.entry.event == "batch_first_token"
    )
    assert (left.phase, left.task_id) == ("decode_stream", long)
    exits = [p for p in runner.entries(joined) if p.entry.event == "exit"]
    prefill = next(p for p in exits if p.entry.phase == "prefill_stream")
    assert prefill.phase == "decode_stream"
    runner.answer(long)


def test_decode_names_a_request_that_is_still_decoded(runner: Runner) -> None:
    short = runner.ask("short", NO_END, max_output_tokens=60)
    runner.until(Phase, lambda m: m.entry.event == "batch_first_token")
    long = runner.ask("long", NO_END, max_output_tokens=120)
    runner.answer(short)
    shown = runner.until(
        Phase, lambda m: m.entry.event == "decode_token_progress" and m.entry.task_id == long
    )
    assert (shown.phase, shown.task_id) == ("decode_stream", long)
    runner.answer(long)


def test_a_task_out_of_turn_fails_and_the_runner_goes_on(
    fork: Callable[[], Runner], tiny: Path
) -> None:
    runner = fork()
    runner.configure(tiny)
    runner.run(StartWarmup(task_id=TaskId("early"), instance_id=INSTANCE))
    runner.run(ConnectToGroup(task_id=TaskId("group"), instance_id=INSTANCE))
    early = runner.ask("too early")
    assert runner.answer(TaskId("early")).status.status == "Failed"
    assert runner.answer(TaskId("group")).status.status == "Failed"
    assert "RunnerIdle" in (runner.answer(early).status.error_message or "")
    runner.become_ready()
    assert runner.stop() == ExitCode.CLEAN


def test_shutdown_ends_open_requests_first(fork: Callable[[], Runner], tiny: Path) -> None:
    runner = fork()
    runner.configure(tiny)
    runner.become_ready()
    task = runner.ask("for ever", NO_END, max_output_tokens=3000)
    runner.until(Output, lambda m: m.task_id == task)
    runner.run(Shutdown(task_id=TaskId("stop"), instance_id=INSTANCE, runner_id=RunnerId("r")))
    runner.drain()
    assert runner.wait_exit() == ExitCode.CLEAN
    said = reports(runner)
    assert said[-4:] == [
        "stop acknowledged",
        f"{task} Cancelled",
        "stop Complete",
        "RunnerShutdown",
    ]
    events = [p.entry.event for p in runner.entries()]
    assert events[-2:] == ["metal_cleanup_begin", "metal_cleanup_complete"]
    assert runner.entries()[-1].phase == "shutdown_cleanup"


@pytest.mark.parametrize("first", [Ack(sequence=1), "task"], ids=["only an ack", "a task"])
def test_the_end_of_the_pipe_before_configuration_ends_the_runner(
    fork: Callable[[], Runner], first: Ack | str
) -> None:
    runner = fork()
    if isinstance(first, Ack):
        runner.send(first)
        os.close(runner.write_fd)
        runner.write_fd = os.dup(runner.read_fd)
        assert runner.wait_exit() == ExitCode.SUPERVISOR_GONE
    else:
        runner.load()
        assert runner.wait_exit() == ExitCode.BAD_MESSAGE


def test_bytes_that_are_no_message_end_the_runner(fork: Callable[[], Runner], tiny: Path) -> None:
    runner = fork()
    runner.configure(tiny)
    runner.until(Status, lambda m: isinstance(m.status, RunnerIdle))
    os.write(runner.write_fd, b"\x00\x00\x00\x02{}")
    assert runner.wait_exit() == ExitCode.BAD_MESSAGE
    assert "unreadable message" in runner.log_text()
