"""What the checks of `doctor` look at, and what one of them finds. No check is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from skulkctl.nodes.rows import NodeItem
    from skulkctl.placement.instances import InstanceItem
    from skulkctl.storage.rows import StorageItem
    from skulkd.wire.cluster import ClusterSession, LostNode, NodeWarning
    from skulkd.wire.ids import NodeId
    from skulkd.wire.swarm import SwarmStatus
    from skulkd.wire.timeline import Timeline


@dataclass(frozen=True)
class Facts:
    """What the checks look at. None means that it could not be learned."""

    endpoint: str
    nodes: Sequence[NodeItem] = ()
    instances: Sequence[InstanceItem] = ()
    silent: Mapping[NodeId, str] = field(default_factory=dict)
    lacks: frozenset[str] = frozenset()
    not_ready: str | None = None
    session: ClusterSession | None = None
    lost: Sequence[LostNode] = ()
    warnings: Mapping[NodeId, Sequence[NodeWarning]] | None = None
    """By node id."""
    config_problems: Sequence[str] | None = None
    clock_offset_s: float | None = None
    node_clock_offsets_s: Mapping[str, float] = field(default_factory=dict)
    secret_modes: Mapping[str, int] = field(default_factory=dict)
    expected_nodes: int | None = None
    min_free_bytes: int | None = None
    storage: Sequence[StorageItem] | None = None
    client: str = ""
    timeline: Timeline | None = None
    swarm: SwarmStatus | None = None
    open_ring_links: Sequence[str] = ()
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


class Finding(NamedTuple):
    """One result. `hint` is what to type or do next; `nodes` are named before the message."""

    result: str
    message: str
    hint: str | None = None
    nodes: tuple[str, ...] = ()


Check = Callable[[Facts], Iterator[Finding]]
