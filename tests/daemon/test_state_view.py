"""Health as a table, and the state as `GET /state` shows it."""

from __future__ import annotations

from datetime import datetime

import pytest

from skulkd.cluster.health import node_health, silence_seconds
from skulkd.cluster.replica import Replica
from skulkd.cluster.state_view import StateView, merge
from skulkd.cluster.telemetry import NodeReadings, Telemetry
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.events import NodeGatheredInfo, NodeTimedOut, TestEvent
from skulkd.wire.gathered import NodeNetworkInterfaces
from skulkd.wire.machine import DiskUsage, NodeIdentity, NodeNetworkInfo
from tests.daemon.builders import (
    GIB,
    NOON,
    A,
    B,
    a_disk,
    a_failed_download,
    a_pending_download,
    a_state,
    later,
)

FULL = DiskUsage(total=a_disk(0).total, available=a_disk(2).available)
JUST_MORE = FULL.model_copy(
    update={"available": FULL.available.model_copy(update={"in_bytes": 2 * GIB + 1})}
)


@pytest.mark.parametrize(
    ("downloads", "disk", "silence_s", "level", "codes"),
    [
        pytest.param([], None, 0, "ok", [], id="nothing known, nothing wrong"),
        pytest.param([], a_disk(10), 15, "ok", [], id="both just good enough"),
        pytest.param([], a_disk(9.99), 0, "warn", ["disk_low"], id="disk low"),
        pytest.param([], JUST_MORE, 0, "warn", ["disk_low"], id="one byte above full"),
        pytest.param([], FULL, 0, "error", ["disk_full"], id="disk full"),
        pytest.param([], a_disk(0), 0, "error", ["disk_full"], id="no byte free"),
        pytest.param([], None, 15.001, "warn", ["unreachable"], id="silent"),
        pytest.param([a_pending_download()], None, 0, "ok", [], id="a download under way"),
        pytest.param([a_failed_download()], None, 0, "error", ["download_failed"], id="failed"),
        pytest.param(
            [a_failed_download(), a_pending_download(), a_failed_download()],
            a_disk(5),
            60,
            "error",
            ["download_failed", "download_failed", "disk_low", "unreachable"],
            id="all of it, in order",
        ),
    ],
)
def test_health_is_the_worst_of_its_reasons(
    downloads: list[DownloadProgress],
    disk: DiskUsage | None,
    silence_s: float,
    level: str,
    codes: list[str],
) -> None:
    health = node_health(downloads, disk, silence_s)
    assert health.level == level
    assert [reason.code for reason in health.reasons] == codes
    assert all(reason.message and reason.remediation for reason in health.reasons)


def test_reasons_name_the_figures() -> None:
    [disk] = node_health([], a_disk(1.25, 465.6), 0).reasons
    assert "1.2 GiB free of 465.6 GiB" in disk.message
    [download] = node_health([a_failed_download()], None, 0).reasons
    assert "org/llama" in download.message
    assert "no route" in download.message


def test_a_clock_that_runs_ahead_is_no_silence() -> None:
    assert silence_seconds(later(100), NOON) == 0


def test_whoever_gives_readings_is_here() -> None:
    readings = {
        A: NodeReadings(later(5), disk=a_disk(50), identity=NodeIdentity(friendly_name="kite1")),
        B: NodeReadings(later(4), network=NodeNetworkInfo()),
    }
    state = merge(a_state(last_seen={A: NOON}), readings, later(6))
    assert state.node_disk == {A: a_disk(50)}
    assert state.node_network == {B: NodeNetworkInfo()}
    assert state.topology.nodes == [A, B]
    assert state.node_identities[A].friendly_name == "kite1"
    assert state.node_memory == {}
    assert state.last_seen == {A: later(5), B: later(4)}
    assert list(state.node_health) == [A, B]


def test_the_newer_of_event_and_reading_counts_as_seen() -> None:
    state = a_state(last_seen={A: later(10), B: NOON})
    merged = merge(state, {A: NodeReadings(NOON)}, later(20))
    assert merged.last_seen == {A: later(10), B: NOON}
    assert merged.node_health[A].level == "ok"
    assert [reason.code for reason in merged.node_health[B].reasons] == ["unreachable"]


class Bench:
    """A view over a node whose clocks the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.replica = Replica()
        self.telemetry = Telemetry()
        self.view = StateView(self.replica, self.telemetry, lambda: self.seconds, self._now)
        info = NodeNetworkInterfaces(interfaces=[])
        self.replica.apply(NodeGatheredInfo(node_id=A, when=NOON, info=info), 0)

    def _now(self) -> datetime:
        return later(self.seconds)


def test_the_bytes_are_kept_until_something_changes() -> None:
    bench = Bench()
    first = bench.view.as_bytes()
    assert bench.view.as_bytes() is first
    bench.replica.apply(TestEvent(), 1)
    second = bench.view.as_bytes()
    assert b'"lastEventAppliedIdx":1' in second
    bench.telemetry.record(A, NodeReadings(later(0.1), disk=a_disk(50)))
    assert b'"nodeDisk":{"A":' in bench.view.as_bytes()
    bench.telemetry.forget(A)
    assert b'"nodeDisk":{}' in bench.view.as_bytes()


def test_health_follows_the_clock_without_any_change() -> None:
    bench = Bench()
    assert b'"level":"ok"' in bench.view.as_bytes()
    bench.seconds = 15.5
    assert b'"unreachable"' in bench.view.as_bytes()


def test_a_node_whose_readings_are_forgotten_is_gone() -> None:
    bench = Bench()
    bench.telemetry.record(A, NodeReadings(NOON, disk=a_disk(50)))
    bench.replica.apply(NodeTimedOut(node_id=A), 1)
    bench.telemetry.forget(A)
    state = bench.view.current()
    assert state.last_seen == state.node_disk == state.node_health == {}
