"""`skulkctl cancel`: by command, by task, and on the runners themselves."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli
from tests.cli.stock import KITE1, KITE2, Reply
from tests.cli_inference.model_node import (
    COMMAND,
    MODEL,
    ModelNode,
    a_state,
    a_task,
    an_empty_state,
    cancelled,
    error_body,
)

UNKNOWN = Reply(404, error_body("Command not found or already completed", 404))


def runner_said(status: str) -> dict[str, str]:
    return {"nodeId": "n", "runnerId": "r", "taskId": "task-9", "status": status, "message": "m"}


def runner_path(node_id: str, runner_id: str) -> str:
    return f"/v1/diagnostics/cluster/{node_id}/runners/{runner_id}/cancel"


@pytest.fixture
def busy(node: ModelNode) -> ModelNode:
    """A request is open that this node did not take."""
    state = a_state()
    state["tasks"] = {"task-9": a_task("task-9", "cmd-9")}
    node.on("GET", "/state", state)
    for typed in ("task-9", "task", "cmd-9"):
        node.on("POST", f"/v1/cancel/{typed}", UNKNOWN)
    return node


def test_a_command_is_cancelled_where_it_was_taken(cli: Cli, node: ModelNode) -> None:
    assert cli("cancel", COMMAND) == (0, f"cancelled {COMMAND}\n", "")
    assert [seen.path for seen in node.seen if seen.method != "GET"] == [f"/v1/cancel/{COMMAND}"]


def test_a_task_is_cancelled_through_its_command(cli: Cli, busy: ModelNode) -> None:
    busy.on("POST", "/v1/cancel/cmd-9", cancelled("cmd-9"))
    said = f"cancelled task-9 ({MODEL})\n"
    assert cli("cancel", "task-9") == (0, said, "")
    note = f"note: task matches request cmd-9  {MODEL}\n"
    assert cli("cancel", "task") == (0, said, note)


def test_too_little_of_an_id_cancels_nothing(cli: Cli, busy: ModelNode) -> None:
    result = cli("cancel", "tas")
    assert result.code == 2
    assert "error: tas is too short to identify the request to change\n" in result.err
    assert {seen.method for seen in busy.seen} == {"GET"}


def test_a_request_of_another_node_is_cancelled_on_its_runners(cli: Cli, busy: ModelNode) -> None:
    first, second = runner_path(KITE1, "run-a"), runner_path(KITE2, "run-b")
    busy.on("POST", first, runner_said("already_cancelled"))
    busy.on("POST", second, runner_said("cancel_requested"))
    result = cli("cancel", "cmd-9", "-o", "json")
    assert result.code == 0
    assert json.loads(result.out)["action"] == "cancelling"
    assert busy.bodies(first) == busy.bodies(second) == [{"taskId": "task-9"}]


def test_what_is_over_already_is_said(cli: Cli, busy: ModelNode) -> None:
    busy.on("POST", runner_path(KITE1, "run-a"), runner_said("already_completed"))
    busy.on("POST", runner_path(KITE2, "run-b"), Reply(404, error_body("unknown", 404)))
    assert cli("cancel", "task-9").out == f"already completed task-9 ({MODEL})\n"


def test_runners_that_do_not_know_the_task_are_an_error(cli: Cli, busy: ModelNode) -> None:
    for path in (runner_path(KITE1, "run-a"), runner_path(KITE2, "run-b")):
        busy.on("POST", path, Reply(404, error_body("Task not found", 404)))
    assert cli("cancel", "task-9").code == 3


def test_an_id_that_nobody_knows_is_not_found(cli: Cli, node: ModelNode) -> None:
    node.on("GET", "/state", an_empty_state())
    node.on("POST", "/v1/cancel/zzz", UNKNOWN)
    assert cli("cancel", "zzz") == (
        3,
        "",
        "error: no request zzz\n"
        "  no open request or task has this id\n"
        "hint: it may have finished; instances with open requests:  skulkctl instances\n",
    )


def test_a_dry_run_cancels_nothing(cli: Cli, busy: ModelNode) -> None:
    assert cli("cancel", "task", "--dry-run").out == f"would cancel task-9 ({MODEL})\n"
    assert [seen.method for seen in busy.seen] == ["GET"]
