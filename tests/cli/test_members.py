"""What a node of ours adds to the stock answers: members, sessions, clocks, and watching them."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from skulkctl.nodes.rows import skew, trip
from skulkctl.output.watching import changes, differences
from tests.cli.conftest import Cli
from tests.cli.stock import KITE1, KITE2, KITE3, Reply, StockNode, recorded
from tests.daemon_process import wait_until
from tests.skulkctl_process import start_skulkctl


def member(node_id: str, name: str, **extra: Any) -> dict[str, Any]:
    return {
        "nodeId": node_id,
        "name": name,
        "isMaster": node_id == KITE1,
        "isLocal": node_id == KITE1,
        "ok": True,
        "version": "1.3.0",
        "session": "s/7",
        "uptimeSeconds": 3700.0,
        "roundTripMs": 0.4,
        "clockSkewSeconds": -0.0021,
        **extra,
    }


def members(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {
        "generatedAt": "2026-03-04T12:00:00+00:00",
        "localNodeId": KITE1,
        "masterNodeId": KITE1,
        "session": {"id": "s/7", "ageSeconds": 130.0},
        "nodes": list(nodes),
    }


ALL_WELL = members(
    member(KITE1, "kite1", clockSkewSeconds=0.0),
    member(KITE2, "kite2"),
    member(KITE3, "kite3"),
)
SILENT = members(
    member(KITE1, "kite1"),
    member(KITE2, "kite2"),
    member(KITE3, "kite3", ok=False, error="PeerSilent: kite3 did not answer in 3 s", session=None),
)


def test_status_names_master_session_and_its_age(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster", ALL_WELL)
    result = cli("status")
    assert result.code == 0
    assert result.out.startswith("ok · ")
    assert " · 3 nodes · master kite1 for 2m10s · " in result.out
    document = json.loads(cli("status", "-o", "json").out)
    assert document["session"] == {"id": "s/7", "ageSeconds": 130.0}


def test_a_silent_node_makes_the_answer_partial(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster", SILENT)
    result = cli("status")
    assert result.code == 8
    assert "kite3" in result.out
    assert "no_answer" in result.out
    assert cli("status", "--check").code == 7
    listed = cli("nodes", "--columns", "name,health")
    assert listed.code == 8
    assert listed.out.endswith("kite3  NO ANSWER\n")
    assert "kite3: no answer: PeerSilent" in listed.err
    assert cli("doctor", "-q").code == 7


def test_a_node_of_another_session_is_a_problem(cli: Cli, stock: StockNode) -> None:
    split = members(member(KITE1, "kite1"), member(KITE2, "kite2", session="t/9"))
    stock.on("GET", "/v1/cluster", split)
    result = cli("status", "--check")
    assert result.code == 7
    assert "other_session  follows session t/9, not s/7" in result.out
    checks = cli("doctor", "--columns", "result,check,message")
    assert "fail    master        kite2 follows session t/9, not s/7" in checks.out


def test_nodes_show_age_skew_and_round_trip(cli: Cli, stock: StockNode) -> None:
    fresh = member("node-new", "kite9", uptimeSeconds=2.0)
    stock.on("GET", "/v1/cluster", members(*ALL_WELL["nodes"], fresh))
    result = cli("nodes", "--columns", "name,role,age,skew,trip")
    assert result.code == 0
    assert result.out.splitlines() == [
        "NAME   ROLE     AGE  SKEW     TRIP",
        "kite1  master  1h1m  +0.0ms  0.4ms",
        "kite2  worker  1h1m  -2.1ms  0.4ms",
        "kite3  worker  1h1m  -2.1ms  0.4ms",
        # Not in the state yet, and still a row.
        "kite9  worker  2.0s  -2.1ms  0.4ms",
    ]


def test_nodes_that_cannot_be_asked_are_told_by_the_stock_way(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster", Reply(500, {"error": {"message": "broken", "code": 500}}))
    result = cli("nodes")
    assert result.code == 8
    assert "could not query the nodes" in result.err


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "+0.0ms"), (-0.0123, "-12.3ms"), (75.0, "+1m15s"), (None, "-")]
)
def test_a_skew_has_a_direction(value: float | None, shown: str) -> None:
    assert skew(value) == shown


def test_a_trip_that_nobody_measured_is_empty() -> None:
    assert trip(None) == "-"


def test_only_notable_facts_make_a_change() -> None:
    def row(health: str, free: int) -> dict[str, object]:
        return {"id": "a", "health": health, "free": free}

    def found(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
        return [kind for kind, _ in changes(before, after, ("health",))]

    assert found({"a": row("ok", 1)}, {"a": row("ok", 2)}) == []
    assert found({"a": row("ok", 1)}, {"a": row("warn", 1)}) == ["changed"]
    assert found({}, {"a": row("ok", 1)}) == ["joined"]
    assert found({"a": row("ok", 1)}, {}) == ["left"]


def test_a_change_says_what_is_new() -> None:
    before = {"role": "worker", "health": "ok", "error": None}
    after = {"role": "master", "health": "ok", "error": "frozen"}
    told = differences(before, after, ("role", "health", "error"))
    assert told == "role worker → master, error - → frozen"


def test_watch_refuses_formats_that_need_an_end(cli: Cli, stock: StockNode) -> None:
    result = cli("nodes", "--watch", "-o", "json")
    assert result.code == 2
    assert "--watch cannot print json" in result.err


@contextlib.contextmanager
def watching(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    child = start_skulkctl(
        *("nodes", "--watch", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def test_a_watched_table_goes_on_with_what_changed(stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster", ALL_WELL)
    with watching() as child:
        assert child.stdout is not None
        shown = [child.stdout.readline() for _ in range(4)]
        assert shown[0].startswith("NAME")
        stock.on("GET", "/v1/cluster", SILENT)
        at, rest = child.stdout.readline().split("  ", 1)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", at)
        assert re.match(r"changed  kite\d  \S+  health \S+ → NO ANSWER, error - → ", rest), rest


def test_watch_tells_every_change_until_it_is_interrupted(stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster", ALL_WELL)
    with watching("-o", "jsonl") as child:
        assert child.stdout is not None
        first = [json.loads(child.stdout.readline()) for _ in range(3)]
        assert [(one["type"], one["object"]["name"]) for one in first] == [
            ("present", "kite1"),
            ("present", "kite2"),
            ("present", "kite3"),
        ]
        stock.on("GET", "/v1/cluster", SILENT)
        changed = json.loads(child.stdout.readline())
        assert (changed["type"], changed["object"]["health"]) == ("changed", "NO ANSWER")
        # A daemon that does not answer for a while ends nothing.
        stock.on("GET", "/state", Reply(503, {"error": {"message": "busy", "code": 503}}))
        asked = len(stock.seen)
        wait_until(lambda: len(stock.seen) > asked + 1, "two more questions", 300)
        gone = recorded("state")
        for part in ("lastSeen", "nodeIdentities"):
            gone[part].pop(KITE3, None)
        gone["topology"]["nodes"] = [n for n in gone["topology"]["nodes"] if n != KITE3]
        stock.on("GET", "/v1/cluster", members(*ALL_WELL["nodes"][:2]))
        stock.on("GET", "/state", gone)
        left = json.loads(child.stdout.readline())
        assert (left["type"], left["object"]["name"]) == ("left", "kite3")
        child.send_signal(signal.SIGINT)
        assert child.wait(300) == 130


LOST = {
    **members(member(KITE1, "kite1"), member(KITE2, "kite2"), member(KITE3, "kite3")),
    "lost": [
        {
            "name": "kite4",
            "nodeId": "node-4",
            "since": "2026-03-04T12:00:00.123Z",
            "sinceSeconds": 305.2,
        }
    ],
}


def test_a_lost_node_is_listed_everywhere(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster", LOST)
    listed = cli("nodes", "--columns", "name,role,health,seen")
    assert listed.code == 8
    assert listed.out.splitlines()[-1].split() == ["kite4", "-", "lost", "5m5s"]
    assert listed.err == (
        "warning: kite4: lost since 2026-03-04T12:00:00Z: it left without notice\n"
    )
    shown = cli("status")
    assert shown.code == 8
    assert " · 3 of 4 nodes · " in shown.out
    assert ["error", "kite4", "lost"] in [line.split()[:3] for line in shown.out.splitlines()]
    assert cli("status", "--check").code == 7
    document = json.loads(cli("status", "-o", "json").out)
    [problem] = document["problems"]
    assert (problem["code"], problem["where"]) == ("lost", "kite4")
    assert [one["name"] for one in document["nodes"]] == ["kite1", "kite2", "kite3"]
    assert [one["name"] for one in document["lost"]] == ["kite4"]
    assert "lost" in cli("doctor", "-q").out.split()
    timeline = {"generatedAt": "2026-03-04T12:05:05Z", "localNodeId": KITE1, "runners": []}
    stock.on("GET", "/v1/diagnostics/cluster/timeline", timeline)
    top = json.loads(cli("top", "-o", "json").out)
    assert {one["name"]: one["health"] for one in top["nodes"]}["kite4"] == "lost"


def test_a_lost_node_cannot_be_chosen(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster", LOST)
    assert cli("drain", "kite4").code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["kite4"], 9, "error: not confirmed: forget kite4\n"),
        (["kite4", "--dry-run"], 0, "note: would forget kite4: lost for 5m5s"),
        (["kite1", "--yes"], 4, "error: kite1 is in the cluster, so it cannot be forgotten\n"),
        (["kite", "--yes"], 3, "error: no lost node named kite\n  lost nodes: kite4\n"),
    ],
)
def test_what_is_not_forgotten_is_not_asked_for(
    cli: Cli, stock: StockNode, arguments: list[str], code: int, says: str
) -> None:
    stock.on("GET", "/v1/cluster", LOST)
    result = cli("nodes", "forget", *arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(says)
    assert all(one.method == "GET" for one in stock.seen)


def test_a_lost_node_is_forgotten_by_its_whole_name(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster", LOST)
    stock.on("POST", "/v1/cluster/forget", {"name": "kite4", "since": "2026-03-04T12:00:00Z"})
    assert cli("nodes", "forget", "kite4", "--yes") == (0, "forgot kite4\n", "")
    assert json.loads(stock.seen[-1].body) == {"name": "kite4"}


def test_a_stock_server_has_no_lost_nodes(cli: Cli, stock: StockNode) -> None:
    result = cli("nodes", "forget", "kite4", "--yes")
    assert result.code == 4
    assert "does not track lost nodes" in result.err


@pytest.mark.parametrize(
    ("addresses", "shown"),
    [
        ([("127.0.0.1", 27311)], "127.0.0.1:27311"),
        ([("127.0.0.1", 52415), ("10.0.0.7", 52415)], "10.0.0.7"),
        ([("::1", 9000)], "[::1]:9000"),
        ([], "192.168.1.5"),
    ],
)
def test_the_address_is_where_the_api_answers(
    cli: Cli, stock: StockNode, addresses: list[tuple[str, int]], shown: str
) -> None:
    told = [{"host": host, "port": port} for host, port in addresses]
    stock.on("GET", "/v1/cluster", members(member(KITE1, "kite1", apiAddresses=told)))
    rows = json.loads(cli("nodes", "-o", "json").out)["items"]
    assert {row["name"]: row["address"] for row in rows}["kite1"] == shown
