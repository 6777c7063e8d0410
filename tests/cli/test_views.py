"""From the daemon's JSON to rows: what a stock node says, and what it leaves out."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkctl.daemon.members import Members, from_diagnostics
from skulkctl.daemon.reading import Unreadable, read_model
from skulkctl.daemon.state import ClusterState
from skulkctl.diagnostics.page import diagnostics_page
from skulkctl.errors import NotFound, UsageMistake
from skulkctl.nodes.rows import find_node, node_items, rdma_text
from skulkctl.nodes.status_page import StatusItem, status_document, status_screen
from skulkctl.output.tables import value_at
from skulkctl.placement.instances import instance_items
from skulkd.wire.diagnostics import ClusterDiagnostics, NodeDiagnostics
from skulkd.wire.ids import NodeId
from tests.cli.builders import a_recorder_entry, a_supervised_runner
from tests.cli.stock import KITE1, KITE2, KITE3, recorded

GIB = 1024**3


def a_status(document: Any) -> StatusItem:
    state, members = ClusterState(document), Members(NodeId(KITE1))
    nodes, instances = node_items(state, members), instance_items(state)
    return status_document("lab", "http://kite1:52415", state, members, nodes, instances)


def a_screen(document: Any, *, colour: bool = False, room: int | None = None) -> str:
    nodes = node_items(ClusterState(document), Members(NodeId(KITE1)))
    return status_screen(a_status(document), nodes, colour, room)


def test_a_path_that_leads_nowhere_has_no_value() -> None:
    item = {"a": {"b": [1]}}
    assert value_at(item, "a.b") == [1]
    assert value_at(item, "a.b.c") is None
    assert value_at(item, "x.y") is None


def test_a_node_item_has_bytes_as_integers_and_times_in_utc() -> None:
    kite1 = node_items(ClusterState(recorded("state")), Members(NodeId(KITE1)))[0]
    assert kite1["name"] == "kite1"
    assert kite1["role"] == "master"
    assert value_at(kite1, "memory.availableBytes") == 40 * GIB
    assert value_at(kite1, "disk.totalBytes") == 900 * GIB
    assert value_at(kite1, "accelerator.name") == "Apple M4 Pro"
    assert str(kite1["lastSeen"]).endswith("Z")


def test_the_address_is_one_that_other_machines_can_reach() -> None:
    kite1 = node_items(ClusterState(recorded("state")))[0]
    assert kite1["address"] == "192.168.1.5"
    assert kite1["addresses"] == ["127.0.0.1", "fe80::1", "192.168.1.5"]


@pytest.mark.parametrize(
    ("switch", "edges", "shown"),
    [
        ({"enabled": True, "interfacesPresent": True}, True, "on: kite2"),
        ({"enabled": True, "interfacesPresent": True}, False, "on, no link"),
        ({"enabled": False, "interfacesPresent": False}, False, "off"),
        (None, False, "-"),
    ],
)
def test_rdma_is_on_off_or_not_known_and_names_the_nodes_it_leads_to(
    switch: object, edges: bool, shown: str
) -> None:
    state = recorded("state")
    state["nodeRdmaCtl"] = {} if switch is None else {KITE1: switch}
    edge = {"sourceRdmaIface": "rdma_en2", "sinkRdmaIface": "rdma_en3"}
    state["topology"]["connections"] = {KITE1: {KITE2: [edge]}} if edges else {}
    assert rdma_text(node_items(ClusterState(state))[0]["rdma"]) == shown


def test_a_half_known_node_is_a_row_with_nulls_and_no_zeros() -> None:
    kite3 = node_items(ClusterState(recorded("state")))[2]
    empty = ("role", "health", "memory", "disk", "accelerator", "address", "version", "os")
    assert {key: kite3[key] for key in empty} == dict.fromkeys(empty)


def test_silent_nodes_are_those_that_failed_and_those_left_out() -> None:
    cluster = recorded("diagnostics_cluster")
    del cluster["nodes"][1]
    ids = [NodeId(KITE1), NodeId(KITE2), NodeId(KITE3)]
    members = from_diagnostics(ClusterDiagnostics.model_validate(cluster), ids)
    assert members.master_id == KITE1
    assert members.silent == {
        KITE2: "the daemon could not reach it",
        KITE3: "ReadTimeout: timed out",
    }


@pytest.mark.parametrize(
    ("typed", "found"),
    [("kite2", KITE2), ("KITE2", KITE2), (KITE3, KITE3), (KITE1[:9], KITE1), ("kite3", KITE3)],
)
def test_a_node_is_found_by_name_id_or_unique_prefix(typed: str, found: str) -> None:
    assert find_node(node_items(ClusterState(recorded("state"))), typed)["id"] == found


def test_an_exact_name_wins_over_longer_names_that_begin_with_it() -> None:
    state = recorded("state")
    state["nodeIdentities"][KITE2]["friendlyName"] = "kite11"
    assert find_node(node_items(ClusterState(state)), "kite1")["id"] == KITE1


def test_an_ambiguous_prefix_lists_its_candidates() -> None:
    with pytest.raises(UsageMistake) as raised:
        find_node(node_items(ClusterState(recorded("state"))), "12D3KooWB")
    assert raised.value.why == (f"kite2  {KITE2}", f"kite3  {KITE3}")


def test_an_unknown_node_is_not_found() -> None:
    with pytest.raises(NotFound) as raised:
        find_node(node_items(ClusterState(recorded("state"))), "kit9")
    assert raised.value.why == ("nodes: kite1, kite2, kite3",)


@pytest.mark.parametrize(
    ("runner", "ready", "status"),
    [
        ({"RunnerReady": {}}, "2/2", "ready"),
        ({"RunnerRunning": {}}, "2/2", "ready"),
        ({"RunnerWarmingUp": {}}, "1/2", "starting"),
        ({"RunnerFailed": {"errorMessage": "no memory"}}, "1/2", "failed"),
        (None, "1/2", "starting"),
    ],
)
def test_an_instance_is_ready_when_every_runner_is(runner: Any, ready: str, status: str) -> None:
    state = recorded("state")
    state["runners"]["run-b"] = runner
    if runner is None:
        del state["runners"]["run-b"]
    (item,) = instance_items(ClusterState(state))
    assert (item["ready"], item["status"], item["nodes"]) == (ready, status, ["kite1", "kite2"])


def test_a_low_disk_is_a_warning_and_not_a_problem() -> None:
    document = a_status(recorded("state"))
    assert document["healthy"] is True
    assert [entry["code"] for entry in document["warnings"]][:1] == ["disk_low"]


@pytest.mark.parametrize("code", ["unreachable", "disk_full", "download_failed"])
def test_a_silent_node_a_full_disk_and_a_failed_download_are_problems(code: str) -> None:
    state = recorded("state")
    state["nodeHealth"][KITE2]["reasons"][0]["code"] = code
    assert a_status(state)["healthy"] is False


def test_bad_health_without_a_reason_is_a_problem_all_the_same() -> None:
    state = recorded("state")
    state["nodeHealth"][KITE1] = {"level": "error"}
    problems = a_status(state)["problems"]
    assert [entry["code"] for entry in problems] == ["unexplained"]


def test_a_failed_runner_and_an_empty_cluster_are_problems() -> None:
    state = recorded("state")
    state["runners"]["run-b"] = {"RunnerFailed": {"errorMessage": "no memory"}}
    screen = a_screen(state)
    assert "error  mlx-community/Llama-3.2-1B-Instruct-4bit on kite2  runner_failed  no memory" in (
        screen
    )
    assert a_status({"lastSeen": {}})["healthy"] is False


def test_the_screen_shows_problems_first_then_nodes_with_bars_then_instances() -> None:
    state = recorded("state")
    state["runners"]["run-b"] = {"RunnerFailed": {"errorMessage": "no memory"}}
    page = a_screen(state, room=120)
    assert page.startswith("✖ error · lab · ")
    assert page.index("runner_failed") < page.index("kite1 ♛") < page.index("✖ failed")
    assert re.search(r"kite1 ♛ +● ok +█.*░ +\d+\.\d of \d+\.\dGiB", page)
    assert a_screen(state).startswith("error · lab · ")


def test_totals_count_only_what_was_measured() -> None:
    document = a_status(recorded("state"))
    assert document["memory"] == {
        "availableBytes": 60 * GIB,
        "totalBytes": 96 * GIB,
        "nodesMeasured": 2,
    }
    assert a_status({"lastSeen": {}})["memory"] is None


PATHS = {name: recorded(name) for name in ("state", "diagnostics_node")}


def _keys(document: Any, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(document, dict):
        return []
    here = [(*prefix, key) for key in document]
    return here + [path for key in document for path in _keys(document[key], (*prefix, key))]


def _damaged(name: str, paths: list[tuple[str, ...]], value: object) -> Any:
    """A recording with some keys taken away, or replaced by something of another type."""
    document = copy.deepcopy(PATHS[name])
    for path in paths:
        parent: Any = document
        for key in path[:-1]:
            parent = parent.get(key) if isinstance(parent, dict) else None
        if isinstance(parent, dict) and path[-1] in parent:
            if value is None:
                del parent[path[-1]]
            else:
                parent[path[-1]] = value
    return document


WRONG: st.SearchStrategy[object] = st.sampled_from([None, 3, "text", [], {}, True])


@settings(deadline=None)
@given(st.lists(st.sampled_from(_keys(PATHS["state"])), max_size=6), WRONG)
def test_no_missing_or_odd_key_of_a_state_breaks_a_view(
    paths: list[tuple[str, ...]], value: object
) -> None:
    a_screen(_damaged("state", paths, value), colour=True, room=80)


@settings(deadline=None)
@given(st.lists(st.sampled_from(_keys(PATHS["diagnostics_node"])), max_size=6), WRONG)
def test_no_missing_or_odd_key_of_diagnostics_breaks_the_page(
    paths: list[tuple[str, ...]], value: object
) -> None:
    try:
        found = read_model(NodeDiagnostics, _damaged("diagnostics_node", paths, value), print)
    except Unreadable:
        return  # without its runtime it is no answer of a node
    page = diagnostics_page(found, wide=True, colour=False)
    assert page.startswith("RUNTIME\n")
    assert "\x1b" not in page


def test_diagnostics_show_the_newest_recorder_entries_and_all_of_them_when_wide() -> None:
    entries = [a_recorder_entry(f"t{number}", "idle", "runner_ready") for number in range(8)]
    runner = {**a_supervised_runner("r1", "idle"), "flightRecorder": entries}
    document = {**recorded("diagnostics_node"), "supervisorRunners": [runner]}
    found = read_model(NodeDiagnostics, document, pytest.fail)
    short = diagnostics_page(found, wide=False, colour=False)
    assert "RECORDER" in short
    assert "t1 " not in short
    assert "t2 " in short
    assert "t7 " in short
    assert "t0 " in diagnostics_page(found, wide=True, colour=False)
