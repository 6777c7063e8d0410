"""What a node tells of itself, with collectors the test controls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skulkd.api.journal import Journal
from skulkd.cluster.replica import Replica
from skulkd.cluster.telemetry import Telemetry
from skulkd.machine.collect import MachineMonitor
from skulkd.node_report import SelfReport
from skulkd.observe.event_log import EventLog, json_chunks
from skulkd.wire.machine import NetworkInterfaceInfo, NodeNetworkInfo
from tests.daemon.builders import A, a_disk


class Desk:
    """A report over a machine made of values."""

    def __init__(self, home: Path, **readings: Any) -> None:
        self.readings = readings
        self.seconds = 0.0
        monitor = MachineMonitor(
            name="kite1",
            models_dir=home,
            version="0",
            collectors={name: self._reader(name) for name in readings},
            clock=lambda: self.seconds,
        )
        self.replica, self.telemetry, self.events = Replica(), Telemetry(), EventLog()
        journal = Journal(self.events, self.replica)
        self.report = SelfReport(A, monitor, self.replica, self.telemetry, journal)

    async def look(self) -> None:
        """A reading so much later that nothing is taken from the one before."""
        self.seconds += 1000
        await self.report.read_once()

    def _reader(self, name: str) -> Any:
        def read() -> Any:
            value = self.readings[name]
            if isinstance(value, Exception):
                raise value
            return value

        return read


def network(address: str) -> NodeNetworkInfo:
    return NodeNetworkInfo(interfaces=[NetworkInterfaceInfo(name="eth0", ip_address=address)])


async def test_the_first_look_makes_the_node_known(tmp_path: Path) -> None:
    desk = Desk(tmp_path, network=network("10.0.0.1"), disk=a_disk(50))
    await desk.look()
    state = desk.replica.state
    assert state.topology.nodes == list(state.last_seen) == [A]
    assert state.node_network == {A: network("10.0.0.1")}
    readings = desk.telemetry.of(A)
    assert readings is not None
    assert readings.disk == a_disk(50)


async def test_only_a_change_of_the_network_is_a_new_event(tmp_path: Path) -> None:
    desk = Desk(tmp_path, network=network("10.0.0.1"), disk=a_disk(50))
    await desk.look()
    desk.readings["disk"] = a_disk(40)
    await desk.look()
    assert len(desk.events) == 1
    desk.readings["network"] = network("10.0.0.2")
    await desk.look()
    assert len(desk.events) == 2
    assert b"10.0.0.2" in b"".join(json_chunks(desk.events))
    assert desk.replica.state.node_network == {A: network("10.0.0.2")}


async def test_a_reading_that_fails_is_missing_and_a_warning_but_the_node_is_known(
    tmp_path: Path,
) -> None:
    broken = OSError("no such counter")
    desk = Desk(tmp_path, network=broken, disk=broken)
    await desk.look()
    assert list(desk.replica.state.last_seen) == [A]
    readings = desk.telemetry.of(A)
    assert readings is not None
    assert readings.disk is None
    assert [text for text in readings.warnings if "no such counter" in text]
    assert "disk_total_bytes" not in desk.report.figures()
    assert desk.report.figures()["memory_total_bytes"] > 0


async def test_a_network_that_cannot_be_read_for_a_while_is_not_forgotten(tmp_path: Path) -> None:
    desk = Desk(tmp_path, network=network("10.0.0.1"))
    await desk.look()
    desk.readings["network"] = OSError("busy")
    await desk.look()
    assert len(desk.events) == 1
    assert desk.replica.state.node_network == {A: network("10.0.0.1")}


def test_before_the_first_look_there_are_no_figures(tmp_path: Path) -> None:
    assert Desk(tmp_path).report.figures() == {}
