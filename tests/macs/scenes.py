"""Clusters of recorded Macs with known cables, read by the real readers, and planned for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import pytest

from skulkd.cluster.state_view import merge
from skulkd.cluster.telemetry import NodeReadings, dump_readings
from skulkd.machine.rdma import read_rdma
from skulkd.placement.candidates import Cluster, PlanInputs, cluster_of
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.links import MeasuredLink
from skulkd.wire.machine import NetworkInterfaceInfo, NodeIdentity, NodeNetworkInfo
from skulkd.wire.rdma import NodeRdma
from skulkd.wire.state import State
from tests.macs.kinds import M3_ULTRA, M4_PRO_MINI, M5_MAX_BOOK
from tests.macs.recorded import Cable, Mac, install, record
from tests.placement.builders import memory_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Scene:
    """Some Macs and the cables between them."""

    macs: tuple[Mac, ...]
    cables: tuple[Cable, ...]

    def changed(self, name: str, **changes: object) -> Scene:
        """The same with one Mac that differs."""
        macs = [replace(mac, **changes) if mac.name == name else mac for mac in self.macs]
        return replace(self, macs=tuple(macs))

    def everywhere(self, **changes: object) -> Scene:
        scene = self
        for mac in self.macs:
            scene = scene.changed(mac.name, **changes)
        return scene

    def without_cable(self, number: int) -> Scene:
        return replace(self, cables=self.cables[:number] + self.cables[number + 1 :])


DUO = Scene(
    (Mac("a", M3_ULTRA, disk_at="6", memory_gib=256), Mac("b", M5_MAX_BOOK, memory_gib=128)),
    (Cable(("a", "2"), ("b", "2")),),
)
TRIO = Scene(
    tuple(Mac(name, M4_PRO_MINI) for name in "abc"),
    (
        Cable(("a", "1"), ("b", "1")),
        Cable(("a", "2"), ("c", "1")),
        Cable(("b", "2"), ("c", "2")),
    ),
)
QUAD = Scene(
    tuple(Mac(name, M3_ULTRA) for name in "abcd"),
    (
        Cable(("a", "4"), ("b", "4")),
        Cable(("a", "3"), ("c", "3")),
        Cable(("a", "2"), ("d", "2")),
        Cable(("b", "2"), ("c", "2")),
        Cable(("b", "3"), ("d", "3")),
        Cable(("c", "4"), ("d", "4")),
    ),
)


def read_scene(
    scene: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[NodeId, NodeRdma]:
    """What the real readers find with each Mac's tools on PATH, by name."""
    found = {}
    for mac in scene.macs:
        bin_folder = install(folder / mac.name, record(mac, scene.macs, scene.cables))
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{bin_folder}{os.pathsep}/usr/bin:/bin")
            found[NodeId(mac.name)] = read_rdma()
    return found


def merged(scene: Scene, rdma: Mapping[NodeId, NodeRdma]) -> State:
    """The state that a node of this cluster would show; every node reaches every other one."""
    reaches = {
        one.name: [other for other in _names(scene) if other != one.name] for one in scene.macs
    }
    readings = {
        NodeId(mac.name): NodeReadings(
            NOON,
            memory=memory_of(mac.memory_gib, mac.memory_gib - mac.used_gib),
            identity=NodeIdentity(friendly_name=mac.name, os_version=mac.version),
            links=tuple(_link(scene, other) for other in reaches[mac.name]),
            network=NodeNetworkInfo(
                interfaces=[
                    NetworkInterfaceInfo(
                        name="en0", ip_address=_address(scene, mac.name), interface_type="ethernet"
                    )
                ]
            ),
            rdma=rdma.get(NodeId(mac.name)),
        )
        for mac in scene.macs
    }
    assert all(dump_readings(one) for one in readings.values())
    return merge(State(), readings, NOON)


def planned_for(scene: Scene, rdma: Mapping[NodeId, NodeRdma]) -> Cluster:
    """The cluster as the planner sees it."""
    return cluster_of(merged(scene, rdma), ModelId("org/name"), PlanInputs(rdma=rdma))


def pairs(scene: Scene) -> list[tuple[str, str]]:
    return list(permutations(_names(scene), 2))


def _names(scene: Scene) -> Sequence[str]:
    return [mac.name for mac in scene.macs]


def _address(scene: Scene, name: str) -> str:
    return f"10.0.0.{_names(scene).index(name) + 1}"


def _link(scene: Scene, other: str) -> MeasuredLink:
    return MeasuredLink(
        sink=NodeId(other),
        host=_address(scene, other),
        port=52415,
        interface_type="ethernet",
        latency_ms=1.0,
    )
