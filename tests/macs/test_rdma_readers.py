"""Every tool of a Mac may be absent, fail, hang or talk nonsense; the rest is still read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from skulkd.cluster.topology import with_edge
from skulkd.machine.rdma import device_problems, read_rdma
from skulkd.machine.thunderbolt import parse_ports, parse_services
from skulkd.machine.tools import ToolError
from skulkd.machine.warnings import bridge_warnings
from skulkd.wire.ids import NodeId
from skulkd.wire.instances import MlxJacclInstance
from skulkd.wire.machine import ThunderboltBridgeStatus
from skulkd.wire.rdma import NodeRdma, ThunderboltPort
from skulkd.wire.topology import Connection, RdmaConnection, Topology
from skulkd.worker.launch import CannotLaunch, check_rdma_links
from tests.macs.kinds import GENERATIONS, M4_PRO_MINI, THUNDERBOLT_5, Kind
from tests.macs.recorded import Cable, Mac, Run, install, record, uuid_of
from tests.macs.scenes import TRIO
from tests.worker.group_rig import a_group

PROFILER = ("system_profiler", "SPThunderboltDataType", "-json")
PORTS = ("networksetup", "-listallhardwareports")
SERVICES = ("networksetup", "-listnetworkserviceorder")
PutOnPath = Callable[..., Path]


@pytest.fixture
def put_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PutOnPath:
    """Makes this machine the first Mac of the trio, with some runs replaced."""

    def put(*instead: Run, without: str | None = None) -> Path:
        runs = {run.argv: run for run in instead}
        made = [
            runs.get(run.argv, run)
            for run in record(TRIO.macs[0], TRIO.macs, TRIO.cables)
            if run.argv[0] != without
        ]
        folder = install(tmp_path / "bin", made)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin:/bin")
        return folder

    return put


@pytest.mark.parametrize("kind", GENERATIONS, ids=lambda kind: kind.identifier)
def test_ports_of_every_generation_are_joined_by_name(kind: Kind) -> None:
    mac, peer = Mac("a", kind, disk_at="1"), Mac("b", kind)
    runs = {run.argv: run for run in record(mac, [mac, peer], [Cable(("a", "2"), ("b", "2"))])}
    hardware = {device: port for port, device in kind.hardware_ports.items()}
    ports = {port.receptacle: port for port in parse_ports(runs[PROFILER].stdout, hardware)}
    assert {number: port.interface for number, port in ports.items()} == dict(kind.ports)
    fast = kind.idle_speed == THUNDERBOLT_5
    assert ports["2"] == ThunderboltPort(
        receptacle="2",
        interface=kind.ports["2"],
        domain_uuid=uuid_of(mac, "2"),
        link_speed="80 Gb/s" if fast else "40 Gb/s",
        peer_uuid=uuid_of(peer, "2"),
        peer_rdma=True,
    )
    # A disk is connected, but no Mac.
    assert (ports["1"].peer_uuid, ports["1"].link_speed) == (None, kind.idle_speed)


def test_a_whole_mac_is_read(put_on_path: PutOnPath) -> None:
    put_on_path()
    found = read_rdma()
    assert (found.switch, found.problems) == ("enabled", [])
    states = {one.name: (one.active, one.ipv4) for one in found.devices or ()}
    assert states == {
        "rdma_en2": (True, "169.254.1.97"),
        "rdma_en3": (True, "169.254.2.97"),
        "rdma_en4": (False, None),
    }
    assert found.bridge == ThunderboltBridgeStatus(
        enabled=False, exists=True, service_name="TB Bridge"
    )


def test_without_the_tools_there_is_nothing_and_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_rdma() == NodeRdma(switch="absent")


@pytest.mark.parametrize(
    ("run", "changed", "problem"),
    [
        pytest.param(
            Run(PROFILER, "{}"), {"ports": None}, "system_profiler: its answer is not",
            id="not the expected JSON",
        ),
        pytest.param(
            Run(PROFILER, "", 1, "profiler died"), {"ports": None},
            "system_profiler failed with exit code 1: profiler died", id="profiler fails",
        ),
        pytest.param(
            Run(("rdma_ctl", "status"), "", 77, "not permitted"), {"switch": "unknown"},
            "rdma_ctl failed with exit code 77", id="status fails",
        ),
        pytest.param(
            Run(("rdma_ctl", "status"), "not enabled\n"), {"switch": "unknown"},
            "rdma_ctl: its answer is not known: 'not enabled'", id="status in other words",
        ),
        pytest.param(
            Run(("ibv_devinfo", "-v"), "", 255, "No IB devices found"), {"devices": []}, None,
            id="no device",
        ),
        pytest.param(
            Run(("ibv_devinfo", "-v"), "", 1, "broken"), {"devices": None},
            "ibv_devinfo failed with exit code 1: broken", id="devices fail",
        ),
        pytest.param(
            Run(SERVICES, "", 1, "no services"), {"bridge": None},
            "networksetup failed with exit code 1: no services", id="services fail",
        ),
        pytest.param(
            Run(("ifconfig", "bridge0"), "", 1, "interface bridge0 does not exist"),
            {"bridge": ThunderboltBridgeStatus(enabled=False, exists=False)}, None, id="no bridge",
        ),
    ],
)  # fmt: skip
def test_a_tool_that_fails_costs_its_own_reading_only(
    put_on_path: PutOnPath, run: Run, changed: dict[str, object], problem: str | None
) -> None:
    put_on_path()
    expected = read_rdma().model_copy(update=changed)
    put_on_path(run)
    found = read_rdma()
    assert found.model_copy(update={"problems": []}) == expected
    assert [problem in text for text in found.problems if problem] == ([True] if problem else [])
    assert bool(found.problems) == bool(problem)


def test_a_port_that_has_no_interface_is_skipped_alone(put_on_path: PutOnPath) -> None:
    ports = "\nHardware Port: Thunderbolt 2\nDevice: en3\nEthernet Address: 02:00:00:00:00:02\n"
    put_on_path(Run(PORTS, ports))
    found = read_rdma()
    assert {port.receptacle: port.interface for port in found.ports or ()} == {
        "1": None, "2": "en3", "3": None,
    }  # fmt: skip
    assert found.identifiers is not None
    assert [one.rdma_interface for one in found.identifiers.interfaces] == ["rdma_en3"]


def test_before_macos_26_2_the_switch_is_absent_and_not_off(put_on_path: PutOnPath) -> None:
    put_on_path(without="rdma_ctl")
    found = read_rdma()
    assert (found.switch, found.ctl_status) == ("absent", None)


@pytest.mark.parametrize("text", ["", "[]", '{"SPThunderboltDataType": 3}', "null"])
def test_an_answer_of_another_shape_is_an_error(text: str) -> None:
    with pytest.raises(ToolError, match="system_profiler"):
        parse_ports(text, {})


def test_services_are_found_by_device_whatever_they_are_called() -> None:
    text = (
        "An asterisk (*) denotes that a network service is disabled.\n"
        "(1) Ethernet\n(Hardware Port: Ethernet, Device: en0)\n\n"
        "(*) My, own (bridge)\n(Hardware Port: Thunderbolt Bridge, Device: bridge0)\n\n"
    )
    assert parse_services(text) == {"en0": "Ethernet", "bridge0": "My, own (bridge)"}


def over_rdma(size: int, devices: list[list[str | None]]) -> MlxJacclInstance:
    ring = a_group([NodeId(f"node-{rank}") for rank in range(size)])
    return MlxJacclInstance(
        instance_id=ring.instance_id,
        shard_assignments=ring.shard_assignments,
        jaccl_devices=devices,
        jaccl_coordinators={},
    )


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        (["rdma_en2", "rdma_en3"], None),
        (["rdma_en4"], "rdma_en4 is down"),
        (["rdma_en9"], "rdma_en9 is not there"),
    ],
)
async def test_devices_are_tried_before_a_rank_is_started(
    put_on_path: PutOnPath, devices: list[str], words: str | None
) -> None:
    put_on_path()
    assert bool(device_problems(devices)) == (words is not None)
    instance = over_rdma(len(devices) + 1, [[None, *devices]])
    if words is None:
        await check_rdma_links(instance, 0, Topology())
        return
    with pytest.raises(CannotLaunch, match=f"RDMA does not work on this node: {words}") as refused:
        await check_rdma_links(instance, 0, Topology())
    assert refused.value.retryable


@pytest.mark.parametrize(
    ("leads_to", "words"),
    [
        ({"rdma_en2": "node-1", "rdma_en3": "node-2"}, None),
        ({}, None),
        ({"rdma_en2": "node-2"}, "rdma_en2 leads to node-2, not to node-1 any more"),
    ],
)
async def test_cables_that_were_changed_since_are_named(
    put_on_path: PutOnPath, leads_to: dict[str, str], words: str | None
) -> None:
    put_on_path()
    graph = Topology()
    for device, node in leads_to.items():
        edge = RdmaConnection(source_rdma_iface=device, sink_rdma_iface="rdma_en9")
        link = Connection(source=NodeId("node-0"), sink=NodeId(node), edge=edge)
        graph = with_edge(graph, link)
    instance = over_rdma(3, [[None, "rdma_en2", "rdma_en3"]])
    if words is None:
        await check_rdma_links(instance, 0, graph)
        return
    with pytest.raises(CannotLaunch, match=words):
        await check_rdma_links(instance, 0, graph)


def test_an_interface_without_an_address_is_named(put_on_path: PutOnPath) -> None:
    mac = Mac("a", M4_PRO_MINI, without_ipv4=frozenset({"1"}))
    runs = {run.argv: run for run in record(mac, TRIO.macs, TRIO.cables)}
    put_on_path(runs["ibv_devinfo", "-v"])
    [problem] = device_problems(["rdma_en2", "rdma_en3"])
    assert problem.startswith("en2 has no IPv4 address")


def test_what_cannot_be_read_for_a_while_is_as_it_was_but_for_the_switch(
    put_on_path: PutOnPath,
) -> None:
    put_on_path()
    before = read_rdma()
    put_on_path(Run(PROFILER, "", 1, "busy"), Run(("rdma_ctl", "status"), "", 1, "busy"))
    after = read_rdma().after(before)
    assert (after.ports, after.devices) == (before.ports, before.devices)
    assert (after.switch, after.ctl_status) == ("unknown", None)
    put_on_path(Run(("ibv_devinfo", "-v"), "", 255, "No IB devices found"))
    assert read_rdma().after(before).devices == []


@pytest.mark.parametrize(
    ("changes", "warns"),
    [({"bridge": True}, True), ({}, False), ({"bridge": True, "rdma": "disabled"}, False)],
)
def test_a_bridge_over_ports_for_rdma_is_warned_of(
    put_on_path: PutOnPath, changes: dict[str, object], warns: bool
) -> None:
    mac = replace(TRIO.macs[0], **changes)
    put_on_path(*record(mac, TRIO.macs, TRIO.cables))
    told = [warning.remediation for warning in bridge_warnings(read_rdma())]
    command = "sudo networksetup -setnetworkserviceenabled 'TB Bridge' off"
    assert told == ([command] if warns else [])
