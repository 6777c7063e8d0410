"""skulkctl against a real daemon and a real runner, with the generated tiny model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli_inference.terminal import CTRL_C, CTRL_D, terminal
from tests.conftest import StartDaemon
from tests.daemon_process import wait_until
from tests.skulkctl_process import start_skulkctl

pytest.importorskip("mlx_lm")

TINY = "skulk/tiny-llama"


@pytest.fixture
def real(daemon: StartDaemon, home: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """A daemon with the tiny model on its disk."""
    assert cli("model", "pull", "tiny", "-q").code == 0
    environ = {"MLX_DISABLE_COMPILE": "1"}
    started = daemon("--name", "kite1", home=home, environ=environ)
    monkeypatch.setenv("SKULK_ENDPOINT", started.url)


@pytest.mark.usefixtures("real")
def test_a_model_from_its_files_to_its_end(cli: Cli, home: Path) -> None:
    assert cli("models", "--downloaded", "--columns", "model,here,placed", "--no-headers").out == (
        f"{TINY}  kite1  -\n"
    )
    _refusals_say_why(cli)
    assert cli("trace", "on").code == 0
    placed = cli("place", "tiny", "--wait", "--timeout", "2m", "-o", "json")
    assert placed.code == 0
    instance_id = json.loads(placed.out)["instance"]["id"]
    columns = "model,ready,status,nodes,sharding,context,tasks"
    assert cli("instances", "--columns", columns, "--no-headers").out == (
        f"{TINY}  1/1  ready  kite1  Pipeline  4096  0\n"
    )
    once = cli("chat", "Say something.", "--max-tokens", "5", "--temperature", "0", "-o", "json")
    twice = cli("chat", "Say something.", "--max-tokens", "5", "--temperature", "0", "--no-stream")
    answer = json.loads(once.out)
    assert (answer["tokens"], answer["model"]) == (5, TINY)
    assert twice.out.rstrip("\n") == answer["text"].rstrip("\n")
    assert cli("probe").code == 0
    _a_load_curve_has_a_step_for_each_number_of_clients(cli)
    assert cli("chat", TINY, "x", "--max-tokens", "100000").code == 4
    _ctrl_c_frees_the_runner(cli)
    _a_conversation_goes_on_after_ctrl_c(cli)
    _a_killed_runner_ends_the_answer(cli)
    assert cli("wait", TINY, "--fail-on", "none", "--timeout", "2m", "-q").code == 0
    assert cli("delete", instance_id[:6], "--yes", "--wait").code == 0
    assert cli("chat", TINY, "x").code == 3
    assert cli("wait", instance_id).code == 3
    _every_file_is_private(home)


def _every_file_is_private(home: Path) -> None:
    modes = {path.relative_to(home): path.lstat().st_mode & 0o777 for path in home.rglob("*")}
    assert any(path.suffix == ".safetensors" for path in modes)
    assert any("traces" in path.parts and path.suffix for path in modes)
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}


def _a_load_curve_has_a_step_for_each_number_of_clients(cli: Cli) -> None:
    assert cli("bench", TINY, "--concurrency", "1,0").code == 2
    options = ("--concurrency", "1,3", "--requests", "1", "--max-tokens", "4", "-o", "json")
    measured = json.loads(cli("bench", TINY, *options).out)["items"]
    assert [(step["concurrency"], step["requests"], step["tokens"]) for step in measured] == [
        (1, 1, 4),
        (3, 3, 12),
    ]
    assert all(step["tokensPerSecond"] > 0 and step["failed"] == 0 for step in measured)
    assert all(step["firstTokenSecondsP90"] > 0 for step in measured)


def _refusals_say_why(cli: Cli) -> None:
    assert cli("place", "tinny").err.splitlines()[1] == f"hint: did you mean {TINY}?"
    assert cli("place", "skulk/unknown").code == 3
    refused = cli("place", TINY, "--min-nodes", "2")
    assert (refused.code, refused.err.splitlines()[0]) == (4, f"error: cannot place {TINY}")
    assert cli("place", "mlx-community/Llama-3.3-70B-Instruct-8bit").code == 4
    assert cli("instances", "-q").out == ""


def _open_requests(cli: Cli) -> str:
    return cli("instances", "--columns", "tasks", "--no-headers").out.strip()


def _a_long_answer() -> subprocess.Popen[bytes]:
    """skulkctl in the middle of an answer; the likeliest words of this model never end."""
    arguments = ["chat", TINY, "On and on", "--max-tokens", "3000", "--temperature", "0"]
    child = start_skulkctl(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.read(1)
    return child


def _a_killed_runner_ends_the_answer(cli: Cli) -> None:
    child = _a_long_answer()
    (runner,) = json.loads(cli("diagnose", "-o", "json").out)["supervisorRunners"]
    os.kill(runner["pid"], signal.SIGKILL)
    _, said = child.communicate(timeout=600)
    assert child.returncode == 1
    assert said.startswith(f"error: {TINY} did not complete its response\n".encode())
    assert b"signal=9" in said
    assert b"hint: retrying may help\n" in said


def _ctrl_c_frees_the_runner(cli: Cli) -> None:
    child = _a_long_answer()
    assert _open_requests(cli) == "1"
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=600)
    assert child.returncode == 130
    assert said == b"warning: interrupted; the request has been cancelled\n"
    wait_until(lambda: _open_requests(cli) == "0", "the runner to drop the request")


def _a_conversation_goes_on_after_ctrl_c(cli: Cli) -> None:
    arguments = ("chat", "--max-tokens", "3000", "--temperature", "0")
    with terminal(*arguments, environ={"TERM": "dumb"}) as screen:
        screen.expect(">>> ")
        screen.type("On and on\n")
        wait_until(lambda: _open_requests(cli) == "1", "the request")
        screen.type(CTRL_C)
        screen.expect("cancelled\n")
        wait_until(lambda: _open_requests(cli) == "0", "the runner to drop the request")
        screen.expect(">>> ")
        screen.type(CTRL_D)
        assert screen.leave() == 0


@pytest.mark.usefixtures("real")
def test_a_broken_model_fails_the_wait_with_the_runner_and_its_phase(cli: Cli, home: Path) -> None:
    weights = home / "models" / "skulk--tiny-llama" / "model.safetensors"
    config = weights.with_name("config.json")
    document = json.loads(config.read_text())
    config.write_text(json.dumps({**document, "hidden_size": document["hidden_size"] * 2}))
    result = cli("place", TINY, "--wait", "-q", "--timeout", "2m")
    assert result.code == 1
    first, why, phase, *_ = result.err.splitlines()
    assert first.startswith(f"error: {TINY} (")
    assert first.endswith(") did not become ready")
    assert why.startswith("  rank 0 on kite1 (runner ")
    assert phase.startswith("  last phase: ")
    assert "hint: skulkctl diagnose kite1" in result.err
