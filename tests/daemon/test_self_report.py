"""What a node tells of itself, with collectors the test controls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skulkd.cluster.self_report import ReportDeps, SelfReport
from skulkd.cluster.telemetry import Telemetry
from skulkd.machine.collect import MachineMonitor
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
        self.telemetry = Telemetry()
        self.told = 0
        deps = ReportDeps(lambda: "kite1-2", publish=self._tell)
        self.report = SelfReport(A, monitor, self.telemetry, deps)

    def _tell(self) -> None:
        self.told += 1

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


async def test_a_look_is_recorded_and_told_to_others(tmp_path: Path) -> None:
    desk = Desk(tmp_path, network=network("10.0.0.1"), disk=a_disk(50))
    await desk.look()
    readings = desk.telemetry.of(A)
    assert readings is not None
    assert readings.disk == a_disk(50)
    assert readings.network == network("10.0.0.1")
    assert desk.told == 1


async def test_the_name_is_the_one_that_is_unique_in_the_cluster(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.look()
    readings = desk.telemetry.of(A)
    assert readings is not None
    assert readings.identity is not None
    assert readings.identity.friendly_name == "kite1-2"


async def test_a_reading_that_fails_is_missing_and_a_warning(
    tmp_path: Path,
) -> None:
    broken = OSError("no such counter")
    desk = Desk(tmp_path, network=broken, disk=broken)
    await desk.look()
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
    readings = desk.telemetry.of(A)
    assert readings is not None
    assert readings.network == network("10.0.0.1")


def test_before_the_first_look_there_are_no_figures(tmp_path: Path) -> None:
    assert Desk(tmp_path).report.figures() == {}
