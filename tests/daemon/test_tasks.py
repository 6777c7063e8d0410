"""Every background task of a real daemon is ended: it heals, or exits with its code."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skulkd.supervision import EXIT_TASK_FAILED
from tests.cluster_live.cluster import free_port
from tests.daemon_process import DaemonProcess, attach, daemon_environ, wait_until

NAMES = {"readings", "worker", "cluster", "links", "store server", "eviction", "gateway node"}


class Controlled:
    """The daemon of `controlled.py`."""

    def __init__(self, home: Path) -> None:
        self.daemon: DaemonProcess = attach(
            home,
            [sys.executable, "-m", "tests.daemon.controlled"],
            environ=daemon_environ(home),
            stdin=subprocess.PIPE,
        )
        self.daemon.wait_ready()

    def tell(self, **order: str) -> dict[str, Any]:
        """The tasks by name."""
        stdin = self.daemon.process.stdin
        assert stdin is not None
        answers = len(self.daemon.stdout)
        stdin.write(json.dumps(order).encode() + b"\n")
        stdin.flush()
        wait_until(lambda: len(self.daemon.stdout) > answers, "the answer of the control")
        found: dict[str, Any] = json.loads(self.daemon.stdout[-1])
        return found

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.daemon.url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def wait_well(self) -> None:
        wait_until(lambda: self.ask("GET", "/readyz")[0] == 200, "the daemon to be ready")
        wait_until(lambda: self.health()["level"] != "error", "the node to be healthy")
        assert self.ask("PUT", "/v1/tracing", {"enabled": True})[0] == 200

    def health(self) -> Any:
        [health] = self.daemon.get("/state")["nodeHealth"].values()
        return health


@pytest.fixture
def controlled(tmp_path: Path) -> Iterator[Controlled]:
    config = {
        "model_store": {
            "enabled": True,
            "store_host": "kite1",
            "store_port": free_port(),
            "store_path": str(tmp_path / "store"),
        }
    }
    (tmp_path / "skulk.yaml").write_text(json.dumps(config), encoding="utf-8")
    found = Controlled(tmp_path)
    try:
        yield found
    finally:
        found.daemon.kill()


def test_every_task_that_is_ended_runs_again(controlled: Controlled) -> None:
    tasks = controlled.tell()
    assert tasks.keys() >= NAMES
    for name in tasks:
        controlled.tell(cancel=name)

        def runs_again(name: str = name) -> bool:
            one = controlled.tell()[name]
            return one["restarts"] == 1 and not one["problem"]

        wait_until(runs_again, f"{name} to run again")
    controlled.wait_well()
    assert controlled.daemon.stop() == 0


def test_a_cluster_task_that_is_down_refuses_commands_and_says_so(controlled: Controlled) -> None:
    controlled.wait_well()
    controlled.tell(fail="cluster", error="OSError")
    wait_until(
        lambda: "made to fail" in controlled.tell()["cluster"]["problem"], "the task to be down"
    )
    status, body = controlled.ask("GET", "/readyz")
    assert status == 503
    assert "background task cluster" in body["error"]["message"]
    for method, path, order in (
        ("PUT", "/v1/tracing", {"enabled": False}),
        ("DELETE", "/instance/i1", None),
    ):
        status, body = controlled.ask(method, path, order)
        assert (status, body["error"]["refusal"]["kind"]) == (503, "ClusterDown"), body
        assert "made to fail" in body["error"]["message"]
    wait_until(lambda: controlled.health()["level"] == "error", "the node's health")
    [reason] = [one for one in controlled.health()["reasons"] if one["code"] == "task_down"]
    assert "cluster" in reason["message"]
    controlled.tell(heal="cluster")
    controlled.wait_well()


@pytest.mark.parametrize("name", ["cluster", "worker"])
def test_an_essential_task_that_cannot_be_kept_running_ends_the_daemon(
    controlled: Controlled, name: str
) -> None:
    assert controlled.tell()[name]["essential"]
    controlled.tell(fail=name, error="RuntimeError")
    assert controlled.daemon.wait_exit() == EXIT_TASK_FAILED
    assert f"background task '{name}' keeps failing" in controlled.daemon.said()
