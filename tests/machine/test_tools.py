"""run_tool against real processes that behave and misbehave."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from skulkd.machine.tools import (
    ToolError,
    ToolFailed,
    ToolMissing,
    ToolTimeout,
    run_tool,
    stop_running_tools,
)

from .conftest import wait_until


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_output_comes_back_in_the_c_locale() -> None:
    assert run_tool(["sh", "-c", "echo $LC_ALL $LANG"], 10) == "C C\n"


def test_tool_reads_an_empty_stdin() -> None:
    assert run_tool(["cat"], 10) == ""


def test_missing_tool_is_named() -> None:
    with pytest.raises(ToolMissing, match="no-such-tool-here cannot be started"):
        run_tool(["no-such-tool-here"], 10)


def test_failure_tells_code_and_first_line() -> None:
    with pytest.raises(ToolFailed, match=r"sh failed with exit code 9: driver not loaded$") as info:
        run_tool(["sh", "-c", "echo driver not loaded >&2; echo more >&2; exit 9"], 10)
    assert info.value.code == 9


def test_hanging_tool_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid_file}; wait"
    with pytest.raises(ToolTimeout, match=r"did not answer within 0\.5 s"):
        run_tool(["sh", "-c", script], 0.5)
    inner = int(pid_file.read_text())
    wait_until(lambda: _gone(inner), "the sleep that the tool started ends")


def test_child_that_an_ended_tool_left_behind_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(ToolTimeout):
        run_tool(["sh", "-c", f"sleep 600 & echo $! > {pid_file}"], 0.5)
    inner = int(pid_file.read_text())
    wait_until(lambda: _gone(inner), "the sleep that the tool left ends")


def test_tool_that_closes_its_output_and_stays_is_killed() -> None:
    with pytest.raises(ToolTimeout, match="did not end within"):
        run_tool(["sh", "-c", "exec >&- 2>&-; exec sleep 600"], 0.5)


def test_endless_output_is_refused() -> None:
    with pytest.raises(ToolError, match="more than 5000 bytes"):
        run_tool(["yes"], 30, max_output_bytes=5000)


def test_flood_on_stderr_does_not_block_the_answer() -> None:
    assert run_tool(["sh", "-c", "head -c 300000 /dev/zero >&2; echo ok"], 30) == "ok\n"


def test_stopping_ends_a_tool_that_runs() -> None:
    errors: list[ToolError] = []

    def run() -> None:
        try:
            run_tool(["sleep", "601"], 60)
        except ToolError as error:
            errors.append(error)

    def runs() -> bool:
        children = psutil.Process().children()
        return any(child.cmdline() == ["sleep", "601"] for child in children)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(runs, "the tool runs")
    stop_running_tools()
    thread.join(300)
    assert [str(error) for error in errors] == ["sleep failed with exit code -9"]
