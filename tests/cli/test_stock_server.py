"""skulkctl looks at a stock Skulk 1.3.0 node: whole output, exit codes, what it lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.stock import KITE1, KITE2, KITE3, STORAGE, Reply, StockNode, recorded


def test_status_shows_the_cluster_on_one_screen(cli: Cli, stock: StockNode) -> None:
    assert cli("status") == (
        8,
        f"error · {stock.url} · 3 nodes · master kite1 · 1 problem, 6 warnings\n"
        "memory 60.0 GiB free of 96.0 GiB, 2 of 3 nodes measured · disk 83.0 GiB free of 1.1 TiB, "
        "2 of 3 nodes measured · tracing off · version 1.3.0\n"
        "\n"
        "LEVEL  WHERE  PROBLEM    MESSAGE                                                "
        "          WHAT TO DO\n"
        "error  kite3  no_answer  no answer: ReadTimeout: timed out                      "
        "          skulkctl diagnose kite3\n"
        "warn   kite2  disk_low   8.0 GiB free of 228.0 GiB                              "
        "          free space on the models volume\n"
        "warn   -      version    unknown version on kite3                               "
        "          skulkctl nodes -o wide\n"
        "warn   -      memory     "
        "no memory reading of kite3; nothing can be placed there          skulkctl diagnose kite3\n"
        "warn   -      instances  "
        "mlx-community/Llama-3.2-1B-Instruct-4bit is starting, 1/2 ready  skulkctl status\n"
        "warn   kite2  warnings   wired memory is 3.0 GiB with no live runner            "
        "          skulkctl diagnose kite2\n"
        "warn   -      disk       no disk reading of kite3                               "
        "          skulkctl diagnose kite3\n"
        "\n"
        "NODE     HEALTH              MEMORY  DISK FREE  WORK\n"
        "kite1 ♛  ok         24.0 of 64.0GiB    75.0GiB  idle\n"
        "kite2    warn       12.0 of 32.0GiB     8.0GiB  idle\n"
        "kite3    NO ANSWER                -          -  -\n"
        "\n"
        "MODEL                                     STATE     WHERE        DETAIL       "
        "REQUESTS  INSTANCE\n"
        "mlx-community/Llama-3.2-1B-Instruct-4bit  starting  kite1,kite2  loading 3/8    "
        "     0  7f3c2a10-0b52-4a6e-9a61-1f0c6f1b2d01\n",
        "hint: skulkctl doctor\n",
    )


def test_status_check_tells_a_problem_by_its_exit_code(cli: Cli, stock: StockNode) -> None:
    assert (cli("status").code, cli("status", "--check").code) == (8, 7), "kite3 is silent"
    cluster = recorded("diagnostics_cluster")
    cluster["nodes"][2]["ok"] = True
    stock.on("GET", "/v1/diagnostics/cluster", cluster)
    assert cli("status", "--check").code == 0
    state = recorded("state")
    state["runners"]["run-a"] = {"RunnerFailed": {"errorMessage": "no memory"}}
    stock.on("GET", "/state", state)
    assert cli("status").code == 0
    result = cli("status", "--check", "-o", "json")
    assert result.code == 7
    assert json.loads(result.out)["healthy"] is False


def test_nodes_keeps_the_silent_node_as_a_row_and_exits_8(cli: Cli, stock: StockNode) -> None:
    result = cli("nodes", "--columns", "name,id,role,health,free,memory,disk,address")
    assert result == (
        8,
        "NAME   ID                    ROLE    HEALTH        FREE   MEMORY     DISK  ADDRESS\n"
        "kite1  12D3KooWAa1fXk3Jw8Zq  master  ok         40.0GiB  64.0GiB  75.0GiB  192.168.1.5\n"
        "kite2  12D3KooWBb2gYm4Kx9Vr  worker  warn       20.0GiB  32.0GiB   8.0GiB  192.168.1.6\n"
        "kite3  12D3KooWBc3hZn5Ly7Ws  worker  NO ANSWER        -        -        -  -\n",
        "warning: kite3: no answer: ReadTimeout: timed out\n",
    )


def test_nodes_in_json_is_a_versioned_list(cli: Cli, stock: StockNode) -> None:
    document = json.loads(cli("nodes", "-o", "json", "--sort", "-name").out)
    assert (document["apiVersion"], document["kind"]) == ("skulkctl/v1", "NodeList")
    assert [item["id"] for item in document["items"]] == [KITE3, KITE2, KITE1]


@pytest.mark.parametrize("arguments", [("-o", "name"), ("-q",)])
def test_nodes_by_name_only_prints_names(
    cli: Cli, stock: StockNode, arguments: tuple[str, ...]
) -> None:
    assert cli("nodes", *arguments).out == "kite1\nkite2\nkite3\n"


def test_options_may_stand_before_the_command(cli: Cli, stock: StockNode) -> None:
    assert cli("-o", "jsonl", "nodes").out.count("\n") == 3
    assert cli("-o", "json", "nodes", "-o", "name").out == "kite1\nkite2\nkite3\n"


def test_nodes_of_a_server_without_cluster_diagnostics_are_shown_without_roles(
    cli: Cli, stock: StockNode
) -> None:
    del stock.answers[("GET", "/v1/diagnostics/cluster")]
    result = cli("nodes", "--columns", "name,role")
    assert result.code == 0
    assert result.out == "NAME   ROLE\nkite1  -\nkite2  -\nkite3  -\n"
    assert result.err.startswith("note: this server has no /v1/diagnostics/cluster")


def test_nodes_are_all_silent_when_nobody_can_be_asked(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/diagnostics/cluster", Reply(500, "Internal Server Error", text=True))
    result = cli("nodes", "--columns", "name,health", "--no-headers")
    assert result.code == 8
    assert result.out == "kite1  NO ANSWER\nkite2  NO ANSWER\nkite3  NO ANSWER\n"


def test_an_empty_cluster_is_a_header_and_a_hint(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/state", {"lastSeen": {}, "lastEventAppliedIdx": -1})
    result = cli("nodes", "--columns", "name,health")
    assert (result.code, result.out) == (0, "NAME  HEALTH\n")
    assert result.err.startswith("hint: ")


def test_doctor_checks_the_storage_of_a_stock_node_by_itself(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/store/storage", {**STORAGE, "diskFreeBytes": 1024**3})
    result = cli("doctor", "-o", "json")
    [found] = [one for one in json.loads(result.out)["items"] if one["check"] == "storage"]
    assert (found["result"], found["message"], found["hint"]) == (
        "fail",
        "kite1 has 1.0 GiB free for staged models; staging will fail",
        # A stock node cannot say what a purge would delete, so purge-staging is no help.
        "free space on kite1",
    )
    del stock.answers[("GET", "/store/storage")]
    assert "skip    storage" in cli("doctor").out


@pytest.mark.parametrize(
    "command",
    [
        ("load",),
        ("drain", "kite1"),
        ("undrain", "kite1"),
        ("logs",),
        ("swarm", "status"),
        ("swarm", "pause"),
        ("swarm", "leave", "--yes"),
        ("trace", "list"),
        ("preview", "mlx-community/Llama-3.2-1B-Instruct-4bit"),
        ("purge-staging", "--yes"),
        ("restart", "--instance", "7f3c", "--yes"),
        ("capture",),
    ],
)
def test_what_a_server_cannot_do_is_refused_with_4(
    cli: Cli, stock: StockNode, command: tuple[str, ...]
) -> None:
    result = cli(*command)
    assert (result.code, result.out) == (4, "")
    assert "error: this server cannot " in result.err
    assert "skulkctl restart --instance" not in result.err


def test_doctor_lists_every_check_and_exits_7(cli: Cli, stock: StockNode) -> None:
    result = cli("doctor", "--columns", "result,check", "--no-headers")
    assert result.code == 7
    assert [tuple(line.split()) for line in result.out.splitlines()] == [
        ("ok", "daemon"),
        ("skip", "ready"),
        ("warn", "version"),
        ("ok", "version"),
        ("ok", "cluster-size"),
        ("skip", "lost"),
        ("skip", "master"),
        ("fail", "answers"),
        ("ok", "fresh"),
        ("warn", "memory"),
        ("warn", "disk"),
        ("warn", "disk"),
        ("ok", "storage"),
        ("ok", "health"),
        ("warn", "instances"),
        ("skip", "ranks"),
        ("ok", "ring"),
        ("ok", "blas"),
        ("warn", "warnings"),
        ("ok", "rotation"),
        ("skip", "swarm"),
        ("ok", "config"),
        ("ok", "clock"),
        ("skip", "certificates"),
        ("skip", "secrets"),
        ("ok", "client"),
    ]
    assert "hint: skulkctl diagnose kite3\n" in result.err
    assert result.err.endswith("note: 12 ok, 6 warn, 1 fail, 7 skip\n")


def test_doctor_with_warnings_only_is_well_unless_strict(cli: Cli, stock: StockNode) -> None:
    cluster = recorded("diagnostics_cluster")
    cluster["nodes"][2]["ok"] = True
    stock.on("GET", "/v1/diagnostics/cluster", cluster)
    assert cli("doctor").code == 0
    assert cli("doctor", "--strict").code == 7
    assert cli("doctor", "--expect-nodes", "3").code == 0
    assert cli("doctor", "--expect-nodes", "4", "-q").code == 7
    assert cli("doctor", "--min-free", "70GiB").code == 7


def test_doctor_quiet_names_what_was_found(cli: Cli, stock: StockNode) -> None:
    result = cli("doctor", "-q")
    assert (result.code, result.out, result.err) == (7, "answers\n", "")
    strict = cli("doctor", "-q", "--strict")
    assert strict.out == "version\nanswers\nmemory\ndisk\ninstances\nwarnings\n"


def test_doctor_quiet_says_nothing_when_there_are_only_warnings(cli: Cli, stock: StockNode) -> None:
    """Cron sends a mail for every output."""
    cluster = recorded("diagnostics_cluster")
    cluster["nodes"][2]["ok"] = True
    stock.on("GET", "/v1/diagnostics/cluster", cluster)
    assert cli("doctor", "-q") == (0, "", "")


def test_doctor_finds_a_broken_config_and_a_secret_for_all_to_read(
    cli: Cli, stock: StockNode, home: Path
) -> None:
    stock.on("GET", "/config", {"config": {"tracing": {"retention_days": "x"}}})
    (home / "cluster.secret").write_text("s3cret-s3cret-s3cret\n")
    (home / "cluster.secret").chmod(0o644)
    items = json.loads(cli("doctor", "-o", "json").out)["items"]
    failed = {item["check"]: item["hint"] for item in items if item["result"] == "fail"}
    assert set(failed) == {"answers", "config", "secrets"}
    assert failed["secrets"] == f"chmod 600 {home / 'cluster.secret'}"


def test_diagnose_shows_the_node_that_answers(cli: Cli, stock: StockNode) -> None:
    result = cli("diagnose")
    assert result.code == 0
    assert "  version       1.3.0 (commit 32275ad)\n" in result.out
    assert "  memory now    40.0 GiB free of 64.0 GiB\n" in result.out
    assert "  411  skulk   sleeping  1.5%  113.0MiB  2h2m  python -m skulk\n" in result.out
    assert result.out.endswith("WARNINGS\n  none\n")


def test_diagnose_of_another_node_goes_by_name_and_gives_the_data(
    cli: Cli, stock: StockNode
) -> None:
    document = json.loads(cli("diagnose", "kite1", "-o", "json").out)
    assert document["kind"] == "NodeDiagnostics"
    assert document["runtime"]["nodeId"] == KITE1
    assert stock.seen[-1].path == f"/v1/diagnostics/cluster/{KITE1}"


def test_diagnose_of_a_known_but_silent_node_exits_8(cli: Cli, stock: StockNode) -> None:
    assert cli("diagnose", "kite3") == (
        8,
        "",
        "error: kite3 did not respond\n"
        f"  Node diagnostics endpoint not reachable: {KITE3}\n"
        "hint: skulkctl nodes\n",
    )


def test_what_only_our_urls_say_is_asked_at_the_reference_s_where_they_are_missing(
    cli: Cli, stock: StockNode
) -> None:
    trace = {"taskId": "task-9", "createdAt": "2026-05-04T14:00:00", "fileSize": 10}
    stock.on("GET", "/v1/traces/cluster", {"traces": [trace]})
    listed = cli("trace", "list")
    assert (listed.code, "task-9" in listed.out) == (0, True)
    empty = {"generatedAt": "2026-05-04T14:00:00+00:00", "localNodeId": KITE1, "runners": []}
    stock.on("GET", "/v1/diagnostics/cluster/timeline", {**empty, "timeline": []})
    assert cli("timeline", "--check").code == 0
    asked = [seen.path for seen in stock.seen if "trace" in seen.path or "timeline" in seen.path]
    assert asked == [
        "/v1/cluster/traces", "/v1/traces/cluster",
        "/v1/cluster/timeline", "/v1/diagnostics/cluster/timeline",
    ]  # fmt: skip


def test_our_own_urls_come_first(cli: Cli, stock: StockNode) -> None:
    trace = {"taskId": "task-9", "createdAt": "2026-05-04T14:00:00", "fileSize": 10}
    silent = {"nodeId": KITE3, "error": "no answer in 5 s"}
    stock.on("GET", "/v1/cluster/traces", {"traces": [trace], "unreachableNodes": [silent]})
    listed = cli("trace", "list")
    assert listed.code == 8
    assert "no answer in 5 s" in listed.err


@pytest.mark.parametrize(
    "command",
    ["probe Llama", "chat Llama hello", "load", "events", "swarm status", "drain kite1 --yes",
     "restart --instance 7f3c2 --yes", "nodes forget kite3 --yes", "timeline --check"],
)  # fmt: skip
def test_what_a_server_cannot_do_is_a_refusal(cli: Cli, stock: StockNode, command: str) -> None:
    result = cli(*command.split())
    assert (result.code, result.out) == (4, "")
    assert "error: this server " in result.err
