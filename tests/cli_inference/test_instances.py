"""`skulkctl instances`, `wait` and `delete` against recorded states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skulkctl.cli.command import Command
from skulkctl.cli.invocation import Invocation
from skulkctl.contexts import Context, ContextFile, write_contexts
from skulkctl.errors import Unreachable
from skulkctl.placement.waiting import Goal, wait_for
from tests.cli.conftest import Cli
from tests.cli.stock import Reply
from tests.cli.test_process import on_terminal
from tests.cli_inference.model_node import (
    INSTANCE,
    MODEL,
    READY,
    ModelNode,
    a_state,
    a_task,
    an_empty_state,
    another_instance,
    error_body,
    the_states,
)

DELETED = {"message": "Command received.", "command_id": "c", "instance_id": INSTANCE}


def test_instances_shows_how_far_each_one_is(cli: Cli, node: ModelNode) -> None:
    state = another_instance(
        a_state(READY, {"RunnerLoading": {"layersLoaded": 3, "totalLayers": 8}}),
        "aaaa1111-2222",
        "skulk/tiny-llama",
    )
    state["tasks"] = {"t": a_task("t", "c")}
    node.on("GET", "/state", state)
    assert cli("instances") == (
        0,
        "INSTANCE                              MODEL                                     "
        "READY  STATUS    DETAIL       NODES        SHARDING  CONTEXT  TASKS  UNLOADS\n"
        f"{INSTANCE}  mlx-community/Llama-3.2-1B-Instruct-4bit  "
        "1/2    starting  loading 3/8  kite1,kite2  Pipeline   131072      1  -\n"
        "aaaa1111-2222                         skulk/tiny-llama                          "
        "1/1    ready     -            kite1        Pipeline   131072      0  -\n",
        "",
    )
    assert cli("instances", "-q").out == f"{INSTANCE}\naaaa1111-2222\n"


def test_a_terminal_gets_what_fits(node: ModelNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.on(
        "GET", "/state", a_state(READY, {"RunnerLoading": {"layersLoaded": 3, "totalLayers": 8}})
    )
    monkeypatch.setenv("COLUMNS", "66")
    code, shown = on_terminal("instances", "--no-color")
    assert code == 0
    lines = shown.splitlines()
    assert all(len(line) <= 66 for line in lines)
    assert lines[0].split()[:4] == ["INSTANCE", "MODEL", "READY", "STATUS"]
    assert lines[1].split()[:2] == ["7f3c2a10", MODEL.partition("/")[2]]


def test_wide_has_one_entry_for_each_rank(cli: Cli, node: ModelNode) -> None:
    columns = "layers,runners,ranks,backend,kind"
    assert cli("instances", "--columns", columns, "--no-headers").out == (
        "0-8/16,8-16/16  run-a,run-b  ready,ready  mlx,mlx  MlxRingInstance\n"
    )
    assert f" {INSTANCE}\n" in cli("instances", "-o", "wide").out


def test_no_instance_is_a_header_and_a_hint(cli: Cli, node: ModelNode) -> None:
    node.on("GET", "/state", an_empty_state())
    result = cli("instances", "--columns", "instance,model")
    assert result == (
        0,
        "INSTANCE  MODEL\n",
        "hint: nothing is placed:  skulkctl place MODEL --wait\n",
    )


def test_json_has_the_ranks_and_no_columns(cli: Cli, node: ModelNode) -> None:
    (item,) = json.loads(cli("instances", "-o", "json").out)["items"]
    assert [runner["rank"] for runner in item["runners"]] == [0, 1]
    assert (item["status"], item["detail"], item["tasks"]) == ("ready", None, 0)


def test_wait_returns_when_the_instance_is_ready(cli: Cli, node: ModelNode) -> None:
    node.on("GET", "/state", the_states(a_state(READY, None), a_state()))
    result = cli("wait", "7f3c", "-q")
    assert result == (0, f"{INSTANCE}\n", "")
    assert cli("wait", MODEL).out == f"ready {MODEL} (7f3c2a10) on kite1, kite2\n"


def test_wait_fails_when_the_instance_goes_away(cli: Cli, node: ModelNode) -> None:
    node.on("GET", "/state", the_states(a_state(READY, None), an_empty_state()))
    assert cli("wait", "7f3c", "-q") == (
        1,
        "",
        f"error: {MODEL} (7f3c2a10) was deleted before it was ready\nhint: skulkctl instances\n",
    )


def test_wait_can_outlast_a_failure_when_told_so(cli: Cli, node: ModelNode) -> None:
    failed = a_state(READY, {"RunnerFailed": {"errorMessage": "x"}})
    node.on("GET", "/state", the_states(failed, failed, a_state()))
    assert cli("wait", "7f3c", "--fail-on", "deleted", "-q").code == 0
    node.on("GET", "/state", failed)
    assert cli("wait", "7f3c", "-q").code == 1


@pytest.mark.parametrize("typed", [(), ("llama",), ("mlx-community/Llama",), ("7",), (MODEL,)])
def test_wait_takes_what_chat_takes(cli: Cli, node: ModelNode, typed: tuple[str, ...]) -> None:
    node.on("GET", "/state", a_state())
    assert cli("wait", *typed).out == f"ready {MODEL} (7f3c2a10) on kite1, kite2\n"


def test_wait_takes_the_instance_that_is_ready_of_a_model_that_is_placed_twice(
    cli: Cli, node: ModelNode
) -> None:
    state = a_state()
    state["instances"]["beef0000"] = state["instances"][INSTANCE]
    node.on("GET", "/state", state)
    assert cli("wait", MODEL).code == 0
    result = cli("wait", MODEL, "--for", "deleted")
    assert result.code == 2
    assert f"error: {MODEL} is placed 2 times; give the id of one instance\n" in result.err


def test_wait_for_deleted_ends_when_it_is_gone(cli: Cli, node: ModelNode) -> None:
    node.on("GET", "/state", the_states(a_state(), a_state(), an_empty_state()))
    result = cli("wait", "7f3c", "--for", "deleted")
    assert (result.code, result.out) == (0, f"deleted {MODEL} (7f3c2a10) on kite1, kite2\n")
    assert cli("wait", "7f3c", "--for", "deleted") == (
        0,
        "",
        "note: 7f3c is not placed; there is nothing to wait for\n",
    )
    assert cli("wait", "7f3c").code == 3


@pytest.mark.parametrize(
    "arguments", [("--for", "dinner"), ("--fail-on", "rain"), ("--timeout", "0")]
)
def test_wait_for_nonsense_is_a_usage_mistake(
    cli: Cli, node: ModelNode, arguments: tuple[str, str]
) -> None:
    assert cli("wait", "7f3c", *arguments).code == 2


def test_a_daemon_that_stays_away_ends_the_wait(node: ModelNode) -> None:
    call = Invocation(Command("wait"))
    call.params = {"endpoint": "127.0.0.1:1", "quiet": True}
    with pytest.raises(Unreachable):
        wait_for(call, Goal(INSTANCE, MODEL), patience_s=0.0)


def test_delete_wants_a_yes_without_a_terminal(process: Cli, node: ModelNode) -> None:
    result = process("delete", "7f3c")
    assert result == (
        9,
        "",
        f"note: 7f3c matches instance {INSTANCE}  {MODEL}\n"
        f"error: not confirmed: delete {MODEL} (7f3c2a10)\n"
        "  its memory on kite1,kite2 is freed\n"
        "  stdin is not a terminal, so skulkctl cannot prompt for confirmation\n"
        "hint: add  --yes\n",
    )
    assert not node.asked("DELETE", f"/instance/{INSTANCE}")


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 9)])
def test_delete_asks_and_tells_whose_requests_end(node: ModelNode, typed: str, code: int) -> None:
    state = a_state()
    state["tasks"] = {"t": a_task("t", "c")}
    node.on("GET", "/state", state)
    node.on("DELETE", f"/instance/{INSTANCE}", DELETED)
    ended, shown = on_terminal("delete", MODEL, typed=typed)
    assert ended == code
    assert "1 request will be cancelled" in shown
    assert node.asked("DELETE", f"/instance/{INSTANCE}") == (code == 0)


def test_delete_waits_until_the_instance_is_gone(cli: Cli, node: ModelNode) -> None:
    node.on("DELETE", f"/instance/{INSTANCE}", DELETED)
    node.on("GET", "/state", the_states(a_state(), a_state(), an_empty_state()))
    result = cli("delete", "7f3c", "--yes", "--wait")
    assert (result.code, result.out) == (0, f"deleted {MODEL} (7f3c2a10) on kite1, kite2\n")
    node.on("GET", "/state", a_state())
    assert cli("delete", "7f3c", "--yes").out.startswith("deleting ")
    assert cli("delete", "7f3c", "--yes", "--wait", "--timeout", "300ms", "-q").code == 6


@pytest.mark.parametrize("typed", ["7", "7f3", "lla", "mlx"])
@pytest.mark.parametrize("command", [("delete",), ("restart", "--instance")])
def test_three_characters_are_not_enough_to_end_something(
    cli: Cli, node: ModelNode, command: tuple[str, ...], typed: str
) -> None:
    result = cli(*command, typed, "--yes")
    assert result.code == 2
    assert f"error: {typed} is too short to identify the instance to change\n" in result.err
    assert f"  {INSTANCE}  {MODEL}\n" in result.err
    assert {seen.method for seen in node.seen} == {"GET"}


def test_a_dry_run_deletes_nothing(cli: Cli, node: ModelNode) -> None:
    result = cli("delete", "7f3c", "--dry-run", "-o", "json")
    assert json.loads(result.out)["action"] == "would delete"
    assert {seen.method for seen in node.seen} == {"GET"}


def test_an_instance_that_is_gone_meanwhile_is_not_found(cli: Cli, node: ModelNode) -> None:
    gone = Reply(404, error_body("Instance not found", 404))
    node.on("DELETE", f"/instance/{INSTANCE}", gone)
    result = cli("delete", INSTANCE, "--yes")
    assert (result.code, result.err.splitlines()[0]) == (
        3,
        f"error: cannot delete {MODEL} (7f3c2a10): it no longer exists",
    )


def test_a_protected_context_wants_its_name(cli: Cli, node: ModelNode, home: Path) -> None:
    context = Context("prod", (node.url,), protected=True)
    write_contexts(home / "skulkctl.toml", ContextFile(None, {"prod": context}))
    node.on("DELETE", f"/instance/{INSTANCE}", DELETED)
    arguments = ("delete", "7f3c", "--context", "prod", "--yes")
    assert cli(*arguments).code == 9
    assert cli("place", MODEL, "--context", "prod").code == 9
    assert cli(*arguments, "--confirm", "prod").code == 0
