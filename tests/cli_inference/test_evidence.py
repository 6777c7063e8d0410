"""Capture before cancel and delete: what hangs, and what the operator wants captured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skulkctl.capture.bundles import read_members
from tests.cli.conftest import Cli
from tests.cli.stock import KITE1, KITE2, Reply
from tests.cli_inference.model_node import (
    INSTANCE,
    ModelNode,
    a_state,
    a_task,
    cancelled,
    error_body,
)
from tests.timeline.builders import enter, rank, step, timeline

TIMELINE = "/v1/cluster/timeline"
CAPTURED = {"nodeDiagnostics": {}, "flightRecorder": [], "runner": None, "processSamples": []}


def two_ranks(still_s: float) -> Any:
    """Rank 0 waits for rank 1, which has been computing for so long."""
    first = [step(still_s + 9, "idle", "runner_ready"),
             enter(still_s + 1, "prefill_pipeline", "pipeline_first_eval_recv")]  # fmt: skip
    second = [step(still_s + 9, "idle", "runner_ready"),
              enter(still_s, "prefill_pipeline", "pipeline_last_eval_output")]  # fmt: skip
    shown = timeline(
        rank(0, first, instance=INSTANCE, task="task-9", node=KITE1),
        rank(1, second, instance=INSTANCE, task="task-9", node=KITE2),
    )
    for runner, name in zip(shown["runners"], ("run-a", "run-b"), strict=True):
        for entry in shown["timeline"]:
            if entry["runnerId"] == runner["runnerId"]:
                entry["runnerId"] = name
        runner["runnerId"] = name
    return shown


@pytest.fixture
def hung(node: ModelNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelNode:
    """Two ranks that have not moved for minutes."""
    monkeypatch.chdir(tmp_path)
    state = a_state()
    state["tasks"] = {"task-9": a_task("task-9", "cmd-9")}
    node.on("GET", "/state", state)
    node.on("GET", TIMELINE, two_ranks(200))
    node.on("POST", "/v1/cancel/cmd-9", cancelled("cmd-9"))
    node.on(
        "DELETE",
        f"/instance/{INSTANCE}",
        {"message": "x", "command_id": "c", "instance_id": INSTANCE},
    )
    for node_id in (KITE1, KITE2):
        node.on("POST", f"/v1/diagnostics/cluster/{node_id}/capture", CAPTURED)
    return node


def bundles(folder: Path) -> list[Path]:
    return sorted(folder.glob("skulk-capture-*.tar.zst"))


def changes(node: ModelNode) -> list[str]:
    return [seen.path for seen in node.seen if seen.method != "GET"]


def test_what_hangs_is_captured_before_it_is_cancelled(
    cli: Cli, hung: ModelNode, tmp_path: Path
) -> None:
    result = cli("cancel", "task-9", "-o", "json")
    assert result.code == 0
    [bundle] = bundles(tmp_path)
    assert bundle.name in json.loads(result.out)["capture"]
    assert f"the instance hangs and was captured first: {bundle}" in result.err
    assert {"timeline.json", "verdict.json"} < set(read_members(bundle))
    assert [path.rpartition("/")[2] for path in changes(hung)] == ["capture", "capture", "cmd-9"]


def test_what_hangs_is_captured_before_it_is_deleted(
    cli: Cli, hung: ModelNode, tmp_path: Path
) -> None:
    assert cli("delete", INSTANCE, "--yes").code == 0
    assert len(bundles(tmp_path)) == 1
    assert changes(hung)[-1] == f"/instance/{INSTANCE}"


def test_no_capture_skips_it(cli: Cli, hung: ModelNode, tmp_path: Path) -> None:
    assert cli("cancel", "task-9", "--no-capture").code == 0
    assert bundles(tmp_path) == []
    assert changes(hung) == ["/v1/cancel/cmd-9"]


def test_what_moves_is_captured_only_on_request(cli: Cli, hung: ModelNode, tmp_path: Path) -> None:
    hung.on("GET", TIMELINE, two_ranks(1))
    assert cli("cancel", "task-9").code == 0
    assert bundles(tmp_path) == []
    assert cli("cancel", "task-9", "--capture").code == 0
    assert len(bundles(tmp_path)) == 1


def test_a_wanted_capture_that_fails_changes_nothing(
    cli: Cli, hung: ModelNode, tmp_path: Path
) -> None:
    for node_id in (KITE1, KITE2):
        refusal = Reply(502, error_body("no answer", 502))
        hung.on("POST", f"/v1/diagnostics/cluster/{node_id}/capture", refusal)
    result = cli("cancel", "task-9", "--capture")
    assert result.code != 0
    assert "nothing was changed" in result.err and "--no-capture" in result.err
    assert "/v1/cancel/cmd-9" not in changes(hung)
    assert cli("cancel", "nobody", "--capture").code == 3
    # Without the wish a failed look does not stand in the way.
    assert cli("cancel", "task-9").code == 0
    assert bundles(tmp_path) == []
