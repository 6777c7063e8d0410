"""From the tools of recorded Macs to a plan over RDMA, or to the reason why there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from skulkd.machine.rdma import read_rdma
from skulkd.placement.built import instance_of
from skulkd.placement.fresh import make_fresh
from skulkd.placement.links import links_of
from skulkd.placement.planner import plan
from skulkd.placement.refusals import NoRdma
from skulkd.placement.wish import Wish
from skulkd.wire.ids import NodeId
from skulkd.wire.instances import MlxJacclInstance
from skulkd.wire.topology import RdmaConnection
from tests.macs.kinds import M2_MAX, M4_MINI
from tests.macs.recorded import Cable, Run
from tests.macs.scenes import DUO, QUAD, TRIO, Scene, merged, planned_for, read_scene
from tests.placement.builders import a_card


def wish_for(count: int) -> Wish:
    return Wish(a_card(4), meta="MlxJaccl", min_nodes=count)


def instance_for(
    scene: Scene, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> MlxJacclInstance:
    cluster = planned_for(scene, read_scene(scene, tmp_path, monkeypatch))
    found = plan(wish_for(count), cluster)
    instance = instance_of(found, cluster.links, make_fresh(len(found.ranks)))
    assert isinstance(instance, MlxJacclInstance)
    return instance


@pytest.mark.parametrize(
    ("scene", "matrix"),
    [
        pytest.param(DUO, [[0, 3], [6, 0]], id="duo"),
        pytest.param(TRIO, [[0, 2, 3], [2, 0, 3], [2, 3, 0]], id="trio"),
        pytest.param(QUAD, [[0, 5, 4, 3], [5, 0, 3, 4], [4, 3, 0, 5], [3, 4, 5, 0]], id="quad"),
    ],
)
def test_the_matrix_names_each_ends_own_port_of_each_cable(
    scene: Scene, matrix: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = instance_for(scene, len(scene.macs), tmp_path, monkeypatch)
    assert instance.jaccl_devices == [
        [f"rdma_en{number}" if number else None for number in row] for row in matrix
    ]
    first, *others = instance.jaccl_coordinators.items()
    port = first[1].rpartition(":")[2]
    assert first == ("a", f"0.0.0.0:{port}")
    assert {address for _, address in others} == {f"10.0.0.1:{port}"}


def test_two_crossed_cables_between_one_pair_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossed = replace(DUO, cables=(Cable(("a", "1"), ("b", "2")), Cable(("a", "2"), ("b", "1"))))
    instance = instance_for(crossed, 2, tmp_path, monkeypatch)
    assert instance.jaccl_devices == [[None, "rdma_en2"], ["rdma_en6", None]]


def test_a_cable_that_works_is_taken_when_the_other_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = replace(DUO, cables=(Cable(("a", "1"), ("b", "2")), Cable(("a", "2"), ("b", "1"))))
    scene = scene.changed("b", without_ipv4=frozenset({"2"}))
    instance = instance_for(scene, 2, tmp_path, monkeypatch)
    assert instance.jaccl_devices == [[None, "rdma_en3"], ["rdma_en1", None]]


def test_new_ids_after_a_boot_are_the_same_cables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_scene(TRIO, tmp_path / "before", monkeypatch)
    rebooted = TRIO.changed("a", boot=2)
    after = read_scene(rebooted, tmp_path / "after", monkeypatch)
    # The others have not looked since: their cables to it lead nowhere, until they have.
    mixed = planned_for(TRIO, {**before, "a": after["a"]})
    assert len(plan(wish_for(2), mixed).ranks) == 2
    with pytest.raises(NoRdma):
        plan(wish_for(3), mixed)
    assert len(plan(wish_for(3), planned_for(rebooted, after)).ranks) == 3


def test_the_state_shows_ports_edges_and_switches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = merged(DUO, read_scene(DUO, tmp_path, monkeypatch)).model_dump(mode="json")
    edges = [
        edge
        for sinks in state["topology"]["connections"].values()
        for found in sinks.values()
        for edge in found
        if "sourceRdmaIface" in edge
    ]
    assert edges == [
        {"sourceRdmaIface": "rdma_en3", "sinkRdmaIface": "rdma_en6"},
        {"sourceRdmaIface": "rdma_en6", "sinkRdmaIface": "rdma_en3"},
    ]
    ports = state["nodeThunderbolt"]["b"]["interfaces"]
    assert {port["rdmaInterface"]: port["linkSpeed"] for port in ports} == {
        "rdma_en1": "Up to 120 Gb/s", "rdma_en6": "80 Gb/s", "rdma_en2": "Up to 120 Gb/s",
    }  # fmt: skip
    assert state["nodeRdmaCtl"]["a"] == {"enabled": True, "interfacesPresent": True}
    bridge = {"enabled": False, "exists": True, "serviceName": "TB Bridge"}
    assert state["nodeThunderboltBridge"] == {"a": bridge, "b": bridge}
    assert state["thunderboltBridgeCycles"] == []


GARBLED = {("rdma_ctl", "status"): Run(("rdma_ctl", "status"), "not enabled\n")}
BROKEN = {
    ("ibv_devinfo", "-v"): Run(("ibv_devinfo", "-v"), "", 1, "failed to get the list of devices")
}


@pytest.mark.parametrize(
    ("scene", "code", "words", "hint"),
    [
        pytest.param(
            TRIO.changed("b", rdma="disabled"), "disabled", "b has RDMA disabled",
            "on b: start it in Recovery", id="disabled",
        ),
        pytest.param(
            TRIO.changed("c", kind=M2_MAX), "thunderbolt_4",
            r"c has no Thunderbolt 5 port \(fastest: 40 Gb/s\)", None, id="thunderbolt 4",
        ),
        pytest.param(
            TRIO.changed("a", rdma=None, version="15.6.1"), "macos_version",
            "a runs macOS 15.6.1; RDMA needs 26.2 or later", "update a to macOS 26.2", id="old",
        ),
        pytest.param(
            TRIO.changed("a", instead=GARBLED), "not_read",
            "a does not tell whether RDMA is enabled: rdma_ctl", "skulkctl diagnose a",
            id="garbled status",
        ),
        pytest.param(
            TRIO.changed("a", instead=BROKEN), "not_read",
            "a cannot list its RDMA devices: ibv_devinfo failed", "skulkctl diagnose a",
            id="no device list",
        ),
        pytest.param(
            TRIO.without_cable(2), "no_cable", "no Thunderbolt cable joins b and c",
            "connect b and c by a Thunderbolt 5 cable", id="cable missing",
        ),
        pytest.param(
            TRIO.changed("b", without_ipv4=frozenset({"2"}), bridge=True), "no_ipv4",
            r"en3 on b has no IPv4 address \(the Thunderbolt bridge is on\)",
            "sudo ifconfig en3 inet 192.168.0.1/30", id="no address",
        ),
        pytest.param(
            replace(TRIO, cables=(*TRIO.cables[:2], Cable(("b", "2"), ("c", "2"), "40 Gb/s"))),
            "slow_link", "b is linked to c at only 40 Gb/s", "Thunderbolt 5 cable", id="old cable",
        ),
    ],
)  # fmt: skip
def test_a_refusal_names_what_is_missing_on_which_node(
    scene: Scene,
    code: str,
    words: str,
    hint: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = planned_for(scene, read_scene(scene, tmp_path, monkeypatch))
    with pytest.raises(NoRdma, match=words) as refused:
        plan(wish_for(3), cluster)
    assert code in {gap["code"] for gap in refused.value.data["missing"]}
    assert hint is None or any(hint in text for text in refused.value.hints)
    # The other two are still joined by RDMA, and all three by TCP.
    assert len(plan(wish_for(2), cluster).ranks) == 2
    assert len(plan(replace(wish_for(3), meta="MlxRing"), cluster).ranks) == 3


def test_a_status_that_is_not_known_is_not_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = merged(DUO, read_scene(DUO, tmp_path / "known", monkeypatch))
    assert len(links_of(known).rdma) == 2
    # Edges alone, as another implementation may report them, are not enough.
    del known.node_rdma_ctl[NodeId("b")]
    assert links_of(known).rdma == {}
    unknown = DUO.changed("b", instead=GARBLED)
    state = merged(unknown, read_scene(unknown, tmp_path / "unknown", monkeypatch))
    leaving = {
        source
        for source, sinks in state.topology.connections.items()
        for edges in sinks.values()
        if any(isinstance(edge, RdmaConnection) for edge in edges)
    }
    assert leaving == {"a"}


def test_an_old_port_with_the_switch_on_is_no_rdma(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = DUO.everywhere(kind=M4_MINI)
    rdma = read_scene(scene, tmp_path, monkeypatch)
    assert merged(scene, rdma).node_rdma_ctl["a"].enabled
    with pytest.raises(NoRdma, match=r"a has no Thunderbolt 5 port.*b has no Thunderbolt 5 port"):
        plan(wish_for(2), planned_for(scene, rdma))


def test_a_clique_that_is_too_small_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = TRIO.changed("c", rdma="disabled", memory_gib=512)
    cluster = planned_for(scene, read_scene(scene, tmp_path, monkeypatch))
    wish = Wish(a_card(120), meta="MlxJaccl", min_nodes=2)
    with pytest.raises(NoRdma, match="a, b are joined by RDMA, but have too little memory"):
        plan(wish, cluster)
    assert len(plan(replace(wish, meta="MlxRing"), cluster).ranks) == 2


def test_a_machine_without_the_tools_of_macos_is_no_mac(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rdma = read_scene(DUO, tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoRdma, match="b is not a Mac"):
        plan(wish_for(2), planned_for(DUO, {**rdma, "b": read_rdma()}))
    with pytest.raises(NoRdma, match="b has not reported its Thunderbolt ports yet"):
        plan(wish_for(2), planned_for(DUO, {"a": rdma["a"]}))


def test_a_mac_of_another_owner_is_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rdma = read_scene(DUO, tmp_path, monkeypatch)
    alone = replace(DUO, macs=DUO.macs[:1])
    state = merged(alone, {"a": rdma["a"]})
    assert state.topology.connections == {}


@pytest.mark.parametrize(
    ("scene", "cycles"),
    [
        pytest.param(TRIO, [], id="off"),
        pytest.param(TRIO.everywhere(bridge=True), [["a", "b", "c"]], id="on"),
        pytest.param(
            TRIO.everywhere(bridge=True, rdma="disabled"), [["a", "b", "c"]], id="no rdma"
        ),
        pytest.param(TRIO.everywhere(bridge=True).without_cable(0), [], id="a chain"),
        pytest.param(TRIO.everywhere(bridge=True).changed("b", bridge=False), [], id="one off"),
        pytest.param(
            replace(
                DUO.everywhere(bridge=True),
                cables=(Cable(("a", "1"), ("b", "2")), Cable(("a", "2"), ("b", "1"))),
            ),
            [["a", "b"]],
            id="two cables",
        ),
    ],
)
def test_loops_of_bridges_are_found_and_warned_of(
    scene: Scene,
    cycles: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = merged(scene, read_scene(scene, tmp_path, monkeypatch))
    assert state.thunderbolt_bridge_cycles == cycles
    warned = {
        node
        for node, health in state.node_health.items()
        if "bridge_loop" in {reason.code for reason in health.reasons}
    }
    assert warned == {node for cycle in cycles for node in cycle}
