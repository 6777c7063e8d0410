"""Real deadlocks: a real model over two daemons, a fault in one rank, the verdict over the CLI.

`SKULK_FAULTS` is a test hook of the runner. A group that is stuck is ended by its own deadline
after 60 s and may hang again; so each test waits for the verdict and not for a moment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster_live.chatting import stream
from tests.cluster_live.cluster import TINY_MODEL_ID, LiveCluster, StartCluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

VERDICT_S = 150.0


def skulkctl(node: LiveNode, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line against that node, as an operator would."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SKULK_")}
    return subprocess.run(
        [sys.executable, "-m", "skulkctl", *arguments, "--endpoint", f"127.0.0.1:{node.port}"],
        capture_output=True,
        text=True,
        env={**environ, "SKULK_HOME": str(node.home / "cli")},
        check=False,
        timeout=120,
    )


def verdict(node: LiveNode) -> tuple[int, dict[str, Any]]:
    """The exit code of --check, and the worst finding."""
    done = skulkctl(node, "timeline", "--check", "--hang-after", "2s", "-o", "json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["verdict"]["findings"][0]


def wait_verdict(node: LiveNode, wanted: Callable[[int, dict[str, Any]], bool]) -> dict[str, Any]:
    """The first finding that is wanted."""
    seen: list[str] = []

    def look() -> dict[str, Any] | None:
        code, found = verdict(node)
        line = f"{code} {found['state']} {found['rule']} {found['culprit']}"
        if not seen or seen[-1] != line:
            seen.append(line)
        return found if wanted(code, found) else None

    try:
        found: dict[str, Any] = wait_until(look, "the verdict", VERDICT_S)
    except AssertionError as error:
        raise AssertionError(f"{error}; seen: {seen}") from None
    return found


def is_hang(rule: str) -> Callable[[int, dict[str, Any]], bool]:
    return lambda code, found: code == 7 and found["state"] == "HANG" and found["rule"] == rule


def faulty(cluster: StartCluster, fault: str) -> LiveCluster:
    return cluster(2, environ={"SKULK_FAULTS": fault})


@pytest.mark.parametrize(
    ("fault", "rule", "culprit"),
    [
        pytest.param("stall_before_barrier@1", "D4", 1, id="late-rank"),
        pytest.param("drop_task@1", "D7", 1, id="lost-task"),
        pytest.param("skip_collective@1", "D5", 1, id="skipped", marks=pytest.mark.slow),
        pytest.param("stall_in_barrier@1", "D2", None, id="frozen", marks=pytest.mark.slow),
        pytest.param("stall_step@1", "D26", None, id="mid-step", marks=pytest.mark.slow),
    ],
)
def test_a_stuck_request_is_explained(
    cluster: StartCluster, fault: str, rule: str, culprit: int | None, tmp_path: Path
) -> None:
    running = faulty(cluster, fault)
    node = running.nodes[0]
    running.place(min_nodes=2)
    answer = stream(node, 400)
    found = wait_verdict(node, is_hang(rule))
    assert (None if found["culprit"] is None else found["culprit"]["rank"]) == culprit
    assert found["next"][0].startswith("skulkctl capture ")
    assert found["evidence"]
    target = found["next"][0].split()[2]
    bundle = tmp_path / "hang.tar.zst"
    done = skulkctl(node, "capture", target, "--file", str(bundle), "--sample", "1")
    assert done.returncode == 0, done.stderr
    again = skulkctl(node, "timeline", "--from", str(bundle), "--check", "--hang-after", "1s")
    assert again.returncode == 7, again.stdout
    answer.hang_up()


def test_a_wedged_warm_up_is_explained(cluster: StartCluster) -> None:
    running = faulty(cluster, "wedge_warmup@1")
    node = running.nodes[0]
    placed = node.post("/place_instance", {"model_id": TINY_MODEL_ID, "min_nodes": 2})
    assert placed.status == 200
    found = wait_verdict(node, is_hang("D14"))
    assert any("warm-up limit" in one["why"] for one in found["deadlines"])


@pytest.mark.slow
def test_an_ignored_cancel_is_told_while_the_rank_goes_on(cluster: StartCluster) -> None:
    running = faulty(cluster, "ignore_cancel@0")
    node = running.nodes[0]
    running.place(min_nodes=2)
    answer = stream(node)
    answer.wait_tokens(3)
    assert node.post(f"/v1/cancel/{answer.command_id}").status == 200
    found = wait_verdict(node, lambda code, one: code == 0 and one["rule"] == "D19")
    assert found["culprit"]["rank"] == 0
    answer.hang_up()


@pytest.mark.slow
def test_a_frozen_runner_is_ended_and_remembered(cluster: StartCluster) -> None:
    running = cluster(2)
    node = running.nodes[0]
    running.place(min_nodes=2)
    answer = stream(node)
    answer.wait_tokens(3)
    runners = node.get("/v1/diagnostics/cluster/timeline")["runners"]
    frozen = next(one["pid"] for one in runners if one["deviceRank"] == 1)
    os.kill(frozen, signal.SIGSTOP)
    found = wait_verdict(node, lambda code, one: code == 7 and one["state"] == "RECOVERED")
    assert found["culprit"]["rank"] == 1
    answer.hang_up()
