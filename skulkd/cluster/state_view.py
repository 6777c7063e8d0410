"""`GET /state`: replicated state, readings and health merged, as bytes that are kept.

`merge` is pure. `StateView` keeps the bytes until something changes or they are a
second old, because health depends on age.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from skulkd.cluster.bridge_cycles import bridge_cycles, cables_of_ports
from skulkd.cluster.health import node_health, silence_seconds
from skulkd.cluster.replica import Replica
from skulkd.cluster.telemetry import NodeReadings, Telemetry
from skulkd.cluster.topology import with_links, with_node, with_rdma_readings
from skulkd.wire.ids import NodeId
from skulkd.wire.rdma import NodeRdma
from skulkd.wire.state import State

MAX_AGE_S = 1.0


def merge(state: State, readings: Mapping[NodeId, NodeReadings], now: datetime) -> State:
    """The state with readings and health. Who gives readings is here, whoever else the state knows.

    Nodes come in the order of their ids, so that every node shows the same picture.
    """
    last_seen = {
        node: max(state.last_seen.get(node, readings[node].seen), readings[node].seen)
        if node in readings
        else state.last_seen[node]
        for node in sorted({*state.last_seen, *readings})
    }
    known = {node: readings[node] for node in last_seen if node in readings}
    networks = {n: r.network for n, r in known.items() if r.network is not None}
    graph = state.topology
    for node in last_seen:
        graph = with_node(graph, node)
    disks = {node: r.disk for node, r in known.items() if r.disk is not None}
    rdma = {node: r.rdma for node, r in known.items() if r.rdma is not None}
    thunderbolt = _thunderbolt(state, rdma)
    looping = {
        node: thunderbolt["node_thunderbolt_bridge"][node].service_name or "Thunderbolt Bridge"
        for cycle in thunderbolt["thunderbolt_bridge_cycles"]
        for node in cycle
    }
    return state.model_copy(
        update={
            "last_seen": last_seen,
            "node_memory": {n: r.memory for n, r in known.items() if r.memory is not None},
            "node_system": {n: r.system for n, r in known.items() if r.system is not None},
            "node_identities": {n: r.identity for n, r in known.items() if r.identity is not None},
            "node_disk": disks,
            "node_network": {**state.node_network, **networks},
            "topology": with_rdma_readings(
                with_links(graph, {n: r.links for n, r in known.items()}), rdma
            ),
            **thunderbolt,
            "node_health": {
                node: node_health(
                    state.downloads.get(node, ()),
                    disks.get(node),
                    silence_seconds(seen, now),
                    known[node].warnings if node in known else (),
                    known[node].problems if node in known else (),
                    looping_bridge=looping.get(node),
                )
                for node, seen in last_seen.items()
            },
        }
    )


def _thunderbolt(state: State, rdma: Mapping[NodeId, NodeRdma]) -> dict[str, Any]:
    """Ports, bridges and the RDMA switch, and the loops of bridges that follow from them."""
    ports = {node: info for node, r in rdma.items() if (info := r.identifiers) is not None}
    bridges = {node: r.bridge for node, r in rdma.items() if r.bridge is not None}
    switches = {node: status for node, r in rdma.items() if (status := r.ctl_status) is not None}
    bridging = {**state.node_thunderbolt_bridge, **bridges}
    cycles = state.thunderbolt_bridge_cycles
    if ports:
        cycles = bridge_cycles(cables_of_ports(rdma), bridging)
    return {
        "node_thunderbolt": {**state.node_thunderbolt, **ports},
        "node_thunderbolt_bridge": bridging,
        "thunderbolt_bridge_cycles": cycles,
        "node_rdma_ctl": {**state.node_rdma_ctl, **switches},
    }


class StateView:
    """The answer to `GET /state`, rebuilt only when it would differ."""

    def __init__(
        self,
        replica: Replica,
        telemetry: Telemetry,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._replica = replica
        self._telemetry = telemetry
        self._clock = clock
        self._now = now
        self._versions = (-1, -1)
        self._built_at = 0.0
        self._bytes = b""
        self._etag = ""

    def current(self) -> State:
        """The merged state at this moment."""
        return self.over(self._replica.state)

    def rdma(self) -> dict[NodeId, NodeRdma]:
        """What nodes know of RDMA beside the state: why a link does not work."""
        readings = self._telemetry.all()
        return {node: r.rdma for node, r in readings.items() if r.rdma is not None}

    def wired_limits(self) -> dict[NodeId, int]:
        """The most that the GPUs of Macs may wire, in bytes."""
        readings = self._telemetry.all()
        return {
            node: r.metal.wired_limit.in_bytes
            for node, r in readings.items()
            if r.metal is not None and r.metal.wired_limit is not None
        }

    def over(self, state: State) -> State:
        """This state, merged with the readings of this moment."""
        return merge(state, self._telemetry.all(), self._now())

    def as_bytes(self) -> bytes:
        """The merged state as JSON, at most a second old and never behind a change."""
        versions = (self._replica.version, self._telemetry.version)
        now = self._clock()
        if versions != self._versions or now - self._built_at >= MAX_AGE_S:
            self._bytes = self.current().model_dump_json().encode()
            self._etag = f'"{hashlib.blake2b(self._bytes, digest_size=12).hexdigest()}"'
            self._versions, self._built_at = versions, now
        return self._bytes

    @property
    def etag(self) -> str:
        """Of the bytes that were given last; another content has another one."""
        return self._etag
