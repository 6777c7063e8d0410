"""The cluster's state as `GET /state` tells it: every part a wire model, checked when first read.

A part that nobody reads costs nothing: building the models of a whole `State` takes longer than
the request. The parts are those of `skulkd.wire.state.State`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from skulkctl.daemon.answers import Answer, is_missing_route, not_a_node, read_json
from skulkctl.daemon.reading import Note, Unreadable, read_model, validate

if TYPE_CHECKING:
    from skulkd.wire.downloads import DownloadProgress
    from skulkd.wire.health import NodeHealth
    from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
    from skulkd.wire.instances import Instance
    from skulkd.wire.machine import (
        DiskUsage,
        MemoryUsage,
        NodeIdentity,
        NodeNetworkInfo,
        RdmaCtlStatus,
        SystemPerformanceProfile,
    )
    from skulkd.wire.runners import RunnerStatus
    from skulkd.wire.tasks import Task
    from skulkd.wire.topology import Topology

T = TypeVar("T")

_NEEDED = frozenset({"lastSeen", "topology"})


class Part(Generic[T]):
    """A map from ids to what `skulkd.wire.<module>.<model>` describes, or to lists of that."""

    def __init__(self, module: str, model: str, many: bool = False) -> None:
        self._module, self._model, self._many = module, model, many

    def __set_name__(self, owner: type, name: str) -> None:
        first, *rest = name.split("_")
        self.name, self._key = name, first + "".join(word.capitalize() for word in rest)

    @overload
    def __get__(self, state: None, owner: type) -> Part[T]: ...
    @overload
    def __get__(self, state: ClusterState, owner: type) -> T: ...
    def __get__(self, state: ClusterState | None, owner: type) -> Any:
        if state is None:
            return self
        # Found there from now on, before this descriptor.
        found = vars(state)[self.name] = self._read(state)
        return found

    def _read(self, state: ClusterState) -> object:
        document = state.document.get(self._key)
        if not isinstance(document, Mapping) or not document:
            return {}
        try:
            return validate(self.check, document, state.note)
        except Unreadable as error:
            state.note(f"left out {self._key}: {error}")
            return {}

    @property
    def model(self) -> Any:
        """The type of a value."""
        found = getattr(import_module(f"skulkd.wire.{self._module}"), self._model)
        return list.__class_getitem__(found) if self._many else found

    def check(self, document: object) -> object:
        from pydantic import TypeAdapter

        shape: Any = dict.__class_getitem__((str, self.model))
        adapter: TypeAdapter[Any] = TypeAdapter(shape)
        return adapter.validate_python(document, extra="ignore")


class ClusterState:
    """One answer to `GET /state`, and the clock of the node that gave it."""

    def __init__(
        self,
        document: Mapping[str, Any],
        server_clock: datetime | None = None,
        note: Note = lambda text: None,
    ) -> None:
        self.document = document
        self.note = note
        self.server_clock = server_clock
        self.now = server_clock or datetime.now(UTC)

    instances: Part[dict[InstanceId, Instance]] = Part("instances", "Instance")
    runners: Part[dict[RunnerId, RunnerStatus]] = Part("runners", "RunnerStatus")
    downloads: Part[dict[NodeId, list[DownloadProgress]]] = Part(
        "downloads", "DownloadProgress", True
    )
    tasks: Part[dict[TaskId, Task]] = Part("tasks", "Task")
    last_seen: Part[dict[NodeId, datetime]] = Part("base", "UtcTime")
    node_network: Part[dict[NodeId, NodeNetworkInfo]] = Part("machine", "NodeNetworkInfo")
    node_memory: Part[dict[NodeId, MemoryUsage]] = Part("machine", "MemoryUsage")
    node_system: Part[dict[NodeId, SystemPerformanceProfile]] = Part(
        "machine", "SystemPerformanceProfile"
    )
    node_identities: Part[dict[NodeId, NodeIdentity]] = Part("machine", "NodeIdentity")
    node_disk: Part[dict[NodeId, DiskUsage]] = Part("machine", "DiskUsage")
    node_health: Part[dict[NodeId, NodeHealth]] = Part("health", "NodeHealth")
    node_rdma_ctl: Part[dict[NodeId, RdmaCtlStatus]] = Part("machine", "RdmaCtlStatus")

    @property
    def tracing_enabled(self) -> bool | None:
        found = self.document.get("tracingEnabled")
        return found if isinstance(found, bool) else None

    @cached_property
    def node_ids(self) -> list[NodeId]:
        """Every node that any part of the state mentions, in a stable order."""
        topology = self.document.get("topology")
        connected = topology.get("nodes") if isinstance(topology, Mapping) else None
        listed = connected if isinstance(connected, list) else []
        return list(dict.fromkeys([*self.last_seen, *self.node_identities, *listed]))

    @cached_property
    def topology(self) -> Topology:
        """Which node reaches which, and how; without links where it cannot be read."""
        from skulkd.wire.topology import Topology

        document = self.document.get("topology") or {}
        try:
            return read_model(Topology, document, self.note)
        except Unreadable as error:
            self.note(f"left out topology: {error}")
            return Topology()

    def rdma_links(self, node_id: NodeId) -> list[NodeId]:
        """The nodes that this one reaches by RDMA."""
        from skulkd.wire.topology import RdmaConnection

        reached = self.topology.connections.get(node_id, {})
        return [
            sink
            for sink, edges in reached.items()
            if any(isinstance(edge, RdmaConnection) for edge in edges)
        ]

    def node_name(self, node_id: str) -> str:
        """The friendly name, or the id where the identity has not arrived yet."""
        identity = self.node_identities.get(node_id)  # type: ignore[call-overload]
        return known(identity.friendly_name) or node_id if identity else node_id


def known(text: str | None) -> str | None:
    """The text, or None for an empty one and for the API's word `Unknown`."""
    return text if text not in ("", "Unknown") else None


def read_state(answer: Answer) -> ClusterState:
    """Raises Unreachable when what answers is not a Skulk node."""
    document = None if is_missing_route(answer) else read_json(answer)
    if not isinstance(document, Mapping) or not (_NEEDED & document.keys()):
        why = f"its answer to GET /state is not a cluster state ({answer.status})"
        raise not_a_node(answer, why)
    return ClusterState(document, _clock(answer), answer.note)


def _clock(answer: Answer) -> datetime | None:
    try:
        return parsedate_to_datetime(answer.header("date") or "")
    except ValueError:
        return None
