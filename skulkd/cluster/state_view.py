"""`GET /state`: replicated state, readings and health merged, as bytes that are kept.

`merge` is pure. `StateView` keeps the bytes until something changes or they are a
second old, because health depends on age.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from skulkd.cluster.health import node_health, silence_seconds
from skulkd.cluster.replica import Replica
from skulkd.cluster.telemetry import Readings, Telemetry
from skulkd.cluster.topology import with_links, with_node
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State

MAX_AGE_S = 1.0


def merge(state: State, readings: Mapping[NodeId, Readings], now: datetime) -> State:
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
    return state.model_copy(
        update={
            "last_seen": last_seen,
            "node_memory": {n: r.memory for n, r in known.items() if r.memory is not None},
            "node_system": {n: r.system for n, r in known.items() if r.system is not None},
            "node_identities": {n: r.identity for n, r in known.items() if r.identity is not None},
            "node_disk": disks,
            "node_network": {**state.node_network, **networks},
            "topology": with_links(graph, {n: r.links for n, r in known.items()}),
            "node_health": {
                node: node_health(
                    state.downloads.get(node, ()),
                    disks.get(node),
                    silence_seconds(seen, now),
                    known[node].warnings if node in known else (),
                    known[node].problems if node in known else (),
                )
                for node, seen in last_seen.items()
            },
        }
    )


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
