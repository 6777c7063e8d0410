"""The health checklist over facts, without a daemon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from skulkctl.daemon.members import Members
from skulkctl.daemon.state import ClusterState
from skulkctl.doctor.checklist import TABLE, run_checks, without_daemon
from skulkctl.doctor.facts import Facts
from skulkctl.nodes.rows import node_items
from skulkctl.nodes.status_page import status_document
from skulkctl.placement.instances import waiting_items
from skulkctl.placement.ring import open_ring_links
from skulkd.wire.cluster import ClusterSession, LostNode, NodeWarning
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Host, MlxRingInstance
from skulkd.wire.placement_record import PlacementsAnswer
from tests.cli.builders import a_cluster, as_json, some_shards
from tests.cli.stock import KITE2, recorded
from tests.timeline.builders import rank, read, timeline
from tests.timeline.situations import d1, situations

GIB = 1024**3


def a_node(name: str = "kite1", free_gib: float = 75, seen_s: float = 1) -> Any:
    (node, *_) = node_items(ClusterState(recorded("state")))
    disk = {"availableBytes": int(free_gib * GIB), "totalBytes": 900 * GIB}
    return {**node, "name": name, "id": f"id-{name}", "disk": disk, "seenSecondsAgo": seen_s}


def facts(**changes: Any) -> Facts:
    well = Facts(
        endpoint="http://kite1:52415",
        nodes=[{**a_node(), "role": "master", "session": "s/1"}],
        session=ClusterSession(id="s/1", age_seconds=60.0),
        warnings={NodeId("id-kite1"): []},
        config_problems=[],
        clock_offset_s=0.2,
        secret_modes={"/home/me/cluster.secret": 0o600},
        client="skulkctl",
        timeline=read(timeline()),
        storage=[],
    )
    return replace(well, **changes)


def a_reason(code: str, message: str) -> dict[str, str]:
    return {"code": code, "message": message, "remediation": "see to it"}


def a_warning(message: str, remediation: str | None = None) -> NodeWarning:
    return NodeWarning(message=message, remediation=remediation)


def results(given: Facts, check: str) -> list[str]:
    return [str(item["result"]) for item in run_checks(given) if item["check"] == check]


def message(given: Facts, check: str) -> str:
    return next(str(item["message"]) for item in run_checks(given) if item["check"] == check)


def test_a_healthy_node_passes_every_check_once() -> None:
    items = run_checks(facts())
    assert [item["check"] for item in items] == ["daemon", *TABLE]
    assert {item["result"] for item in items} == {"ok"}
    assert all(item["message"] for item in items)


@pytest.mark.parametrize(
    ("free_gib", "min_free_gib", "result"),
    [(75, None, "ok"), (10, None, "ok"), (9.9, None, "warn"), (2, None, "fail"), (0, None, "fail"),
     (75, 80, "fail"), (9, 5, "warn"), (75, 75, "ok")],
)  # fmt: skip
def test_disk_is_measured_against_the_floor_the_low_mark_and_the_wish(
    free_gib: float, min_free_gib: int | None, result: str
) -> None:
    wish = None if min_free_gib is None else min_free_gib * GIB
    given = facts(nodes=[a_node(free_gib=free_gib)], min_free_bytes=wish)
    assert results(given, "disk") == [result]


@pytest.mark.parametrize(
    ("seen_s", "result"), [(1, "ok"), (15, "ok"), (15.1, "fail"), (30.1, "fail"), (None, "warn")]
)
def test_a_node_that_has_not_reported_lately_fails(seen_s: Any, result: str) -> None:
    assert results(facts(nodes=[a_node(seen_s=seen_s)]), "fresh") == [result]


@pytest.mark.parametrize(("expected", "result"), [(None, "ok"), (1, "ok"), (2, "fail")])
def test_the_cluster_must_have_the_size_that_was_expected(
    expected: int | None, result: str
) -> None:
    assert results(facts(expected_nodes=expected), "cluster-size") == [result]


def test_a_daemon_without_any_node_fails() -> None:
    assert results(facts(nodes=[]), "cluster-size") == ["fail"]


def test_one_row_is_given_for_each_node_in_trouble() -> None:
    nodes = [a_node("kite1", free_gib=1), a_node("kite2", free_gib=5), a_node("kite3")]
    assert results(facts(nodes=nodes), "disk") == ["fail", "warn"]


def test_readings_that_are_missing_are_warnings() -> None:
    blind = {**a_node(), "memory": None, "disk": None, "version": None}
    given = facts(nodes=[blind])
    assert [results(given, name) for name in ("memory", "disk", "version")] == [["warn"]] * 3


def test_mixed_versions_are_named() -> None:
    old = {**a_node("kite2"), "version": "1.2.0"}
    given = facts(nodes=[a_node(), old])
    assert results(given, "version") == ["warn"]
    assert message(given, "version") == "kite1 has 1.3.0, kite2 has 1.2.0"


def test_a_silent_node_fails_with_its_reason() -> None:
    given = facts(silent={"id-kite1": "ReadTimeout: timed out"})
    assert results(given, "answers") == ["fail"]
    assert message(given, "answers") == "kite1 does not respond: ReadTimeout: timed out"


def test_what_a_stock_server_lacks_is_skipped_and_said() -> None:
    lacks = frozenset({"/readyz", "/v1/diagnostics/cluster"})
    given = facts(lacks=lacks, warnings=None, config_problems=None, clock_offset_s=None)
    for name in ("ready", "answers", "warnings", "config", "clock"):
        assert results(given, name) == ["skip"], name
    assert message(given, "ready") == "this server has no /readyz"


def test_a_daemon_that_is_not_ready_fails_with_its_words() -> None:
    given = facts(not_ready="readings: not ready yet")
    assert results(given, "ready") == ["fail"]
    assert message(given, "ready") == "readings: not ready yet"


def test_health_repeats_nothing_that_another_check_tells() -> None:
    state = recorded("state")
    reasons = state["nodeHealth"][KITE2]["reasons"]
    reasons.append(a_reason("download_failed", "org/name: no space"))
    state["nodeHealth"][KITE2]["level"] = "error"
    given = facts(nodes=node_items(ClusterState(state)))
    assert results(given, "health") == ["fail"]
    assert message(given, "health") == "kite2: download_failed: org/name: no space"


@pytest.mark.parametrize(("status", "result"), [("starting", "warn"), ("failed", "fail")])
def test_an_instance_that_is_not_ready_is_told(status: str, result: str) -> None:
    instance = {"modelId": "org/name", "status": status, "ready": "1/2"}
    assert results(facts(instances=[instance]), "instances") == [result]


def test_node_warnings_and_config_problems_are_one_row_each() -> None:
    told = {"id-kite1": [a_warning("a"), a_warning("b")]}
    given = facts(warnings=told, config_problems=["tracing: unknown key"])
    assert results(given, "warnings") == ["warn", "warn"]
    assert results(given, "config") == ["fail"]


def test_the_same_warning_of_several_nodes_is_one_row_with_what_helps() -> None:
    slow = a_warning("no fast BLAS", "install OpenBLAS")
    full = a_warning("the event log is full")
    nodes = [a_node("kite1"), a_node("kite2"), a_node("kite3")]
    nodes[2]["reasons"] = [a_reason("event_log", full.message)]
    told = {"id-kite1": [slow], "id-kite2": [a_warning("odd"), slow], "id-kite3": [slow, full]}
    rows = [
        (item["message"], item["hint"])
        for item in run_checks(facts(nodes=nodes, warnings=told))
        if item["check"] == "warnings"
    ]
    assert rows == [
        ("kite1, kite2, kite3: no fast BLAS", "on kite1, kite2, kite3: install OpenBLAS"),
        ("kite2: odd", "skulkctl diagnose kite2"),
    ]


def test_the_blas_of_every_node_is_named_with_its_speed() -> None:
    computing = [
        ("kite2", {"blas": "MLX's own BLAS", "gflops": None}),
        ("kite1", {"blas": "bundled OpenBLAS", "gflops": 45.4}),
        ("kite1", {"blas": "bundled OpenBLAS", "gflops": 44.0}),
        ("kite1", None),
    ]
    shown = timeline(
        *(rank(number, [], node=f"id-{name}") for number, (name, _) in enumerate(computing))
    )
    for runner, (_, compute) in zip(shown["runners"], computing, strict=True):
        runner["compute"] = compute
    given = facts(nodes=[a_node("kite1"), a_node("kite2")], timeline=read(shown))
    assert message(given, "blas") == (
        "kite1: bundled OpenBLAS, 45 GFLOP/s per core; kite2: MLX's own BLAS"
    )
    assert message(facts(), "blas") == "no model is loaded"


def test_a_lost_member_fails_with_since_when_and_both_ways_out() -> None:
    lost = {"name": "kite3", "since": "2026-03-04T12:00:00.5Z", "sinceSeconds": 305.0}
    given = facts(lost=[LostNode.model_validate(lost)])
    assert results(given, "lost") == ["fail"]
    assert message(given, "lost") == (
        "kite3: lost for 5m5s, since 2026-03-04T12:00:00Z: it left without notice"
    )
    [hint] = [item["hint"] for item in run_checks(given) if item["check"] == "lost"]
    assert hint == "start skulkd on kite3; if it will not come back: skulkctl nodes forget kite3"


def test_status_has_every_warning_of_doctor_that_its_facts_allow() -> None:
    nodes = [
        a_node("kite1", free_gib=5),
        {**a_node("kite2"), "version": "1.2.0", "draining": True, "clockSkewSeconds": 9.0},
        {**a_node("kite3"), "memory": None, "disk": None, "seenSecondsAgo": None},
    ]
    nodes[0]["health"] = "warn"
    nodes[0]["reasons"] = [a_reason("disk_low", "5 GiB")]
    instances: Any = [{"modelId": "m", "status": "starting", "ready": "0/1", "runners": []}]
    slow = a_warning("slow", "faster")
    told = {NodeId("id-kite1"): [slow], NodeId("id-kite2"): [slow]}
    given = facts(nodes=nodes, instances=instances, warnings=told)
    members = Members(warnings=told)
    document = status_document(None, "", ClusterState({}), members, nodes, instances)
    warned = sorted(str(item["check"]) for item in run_checks(given) if item["result"] == "warn")
    renamed = {"disk_low": "disk", "draining": "rotation"}
    codes = [entry["code"] for entry in document["warnings"]]
    assert sorted(renamed.get(code, code) for code in codes) == warned
    assert len(warned) == 9
    assert document["healthy"] is True


def test_clocks_apart_are_a_warning_with_direction() -> None:
    given = facts(clock_offset_s=-90.0, node_clock_offsets_s={"kite2": 30.0, "kite3": 3.0})
    messages = [str(item["message"]) for item in run_checks(given) if item["check"] == "clock"]
    assert messages == [
        "the clock of the server is 1m30s behind this machine",
        "the clock of kite2 is 30s ahead of the node that skulkctl connects to",
    ]


@pytest.mark.parametrize(("mode", "result"), [(0o600, "ok"), (0o400, "ok"), (0o640, "fail")])
def test_a_secret_that_others_can_read_fails(mode: int, result: str) -> None:
    assert results(facts(secret_modes={"/x": mode}), "secrets") == [result]


def test_without_a_daemon_only_local_checks_run() -> None:
    items = without_daemon("connection refused", "skulkd run", facts())
    told = {str(item["check"]): item["result"] for item in items}
    assert told["daemon"] == "fail"
    assert told["secrets"] == told["client"] == "ok"
    assert {told[name] for name in TABLE if name not in ("secrets", "client")} == {"skip"}


def test_every_node_follows_one_master() -> None:
    assert message(facts(), "master") == "kite1 leads, for 1m"
    both = [
        {**a_node(), "role": "master", "session": "s/1"},
        {**a_node("kite2"), "role": "worker", "session": "t/4"},
    ]
    assert results(facts(nodes=both), "master") == ["fail", "ok"]
    assert message(facts(nodes=both), "master") == "kite2 follows session t/4, not s/1"
    assert results(facts(session=None), "master") == ["fail"]
    assert results(facts(lacks=frozenset({"/v1/cluster"})), "master") == ["skip"]


def test_clocks_are_judged_by_what_nodes_measured() -> None:
    late = {**a_node("kite2"), "clockSkewSeconds": -7.0}
    assert results(facts(nodes=[a_node(), late]), "clock") == ["warn"]
    told = message(facts(nodes=[late]), "clock")
    assert told == "the clock of kite2 is 7.0s behind the node that skulkctl connects to"


def test_the_verdict_of_the_timeline_is_a_check() -> None:
    hung = facts(
        timeline=read(d1()), nodes=[{**a_node(), "role": "master", "id": "node-1", "name": "k2"}]
    )
    assert results(hung, "ranks") == ["fail"]
    assert message(hung, "ranks").startswith("HANG D1: gemma-4-26b Rank 1 on k2 is the only rank")
    assert results(facts(timeline=None), "ranks") == ["skip"]


@pytest.mark.parametrize(
    ("state", "result"),
    [("WAITING", "warn"), ("RECOVERED", "warn"), ("RANK MISSING", "fail"), ("HANG", "fail")],
)
def test_waiting_and_recovered_inform_and_do_not_fail(state: str, result: str) -> None:
    for situation in situations():
        if situation.state == state:
            assert results(facts(timeline=read(situation.timeline)), "ranks") == [result], situation


def test_a_model_without_a_place_is_a_failure() -> None:
    row = {"instanceId": "i-1", "modelId": "org/big", "ranks": 2, "sharding": "Pipeline"}
    told = PlacementsAnswer.model_validate({"placements": [], "waiting": [row]})
    given = facts(instances=waiting_items(told))
    assert results(given, "instances") == ["fail"]
    assert "org/big is not placed on any node" in message(given, "instances")


def a_ring(address: str, **interface: str) -> ClusterState:
    """Two nodes whose ranks reach each other at this address; the interface is the second's."""
    hosts = {
        "node-a": [Host(ip="0.0.0.0", port=1), Host(ip=address, port=1)],
        "node-b": [Host(ip="10.0.0.1", port=1), Host(ip="0.0.0.0", port=1)],
    }
    ring = MlxRingInstance(
        instance_id=InstanceId("0123456789ab"),
        shard_assignments=some_shards("org/model", **{"node-a": "run-a", "node-b": "run-b"}),
        hosts_by_node={NodeId(node): known for node, known in hosts.items()},
        ephemeral_port=1,
    )
    network = {"interfaces": [{"name": "eth1", "ipAddress": address, **interface}]}
    return a_cluster(instances={ring.instance_id: as_json(ring)}, nodeNetwork={"node-b": network})


@pytest.mark.parametrize(
    ("address", "interface", "result"),
    [
        ("192.168.1.7", {}, "ok"),
        ("169.254.3.4", {}, "ok"),
        ("127.0.0.1", {}, "ok"),
        ("100.101.2.3", {"name": "tailscale0"}, "ok"),
        ("8.8.4.4", {"name": "eth0", "interfaceType": "ethernet"}, "warn"),
        ("8.8.4.4", {"name": "wg0"}, "ok"),
        ("8.8.4.4", {"name": "en5", "interfaceType": "thunderbolt"}, "ok"),
        ("198.51.100.1", {}, "ok"),  # the contract's placeholder for "no address"
    ],
)
def test_a_ring_over_a_public_network_is_warned_about(
    address: str, interface: dict[str, str], result: str
) -> None:
    given = facts(open_ring_links=open_ring_links(a_ring(address, **interface)))
    assert results(given, "ring") == [result]
    if result == "warn":
        assert message(given, "ring").startswith(
            "org/model (01234567): node-a to node-b at 8.8.4.4"
        )
