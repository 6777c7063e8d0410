"""Nodes as the planner sees them: their memory, and what speaks against using them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from skulkd.placement.links import Links, links_of
from skulkd.placement.memory import (
    usable_bytes,
    usable_vram_bytes,
    vram_set_bytes,
    working_set_bytes,
)
from skulkd.placement.promises import promised_bytes
from skulkd.wire.base import Memory
from skulkd.wire.downloads import (
    DownloadCompleted,
    DownloadFailed,
    DownloadOngoing,
    DownloadPending,
    DownloadProgress,
)
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.machine import AcceleratorMetrics, MemoryUsage
from skulkd.wire.placement import DequantizeMode
from skulkd.wire.rdma import NodeRdma
from skulkd.wire.state import State

RAM_POOL = "the lesser of available RAM and 75% of RAM"
VRAM_POOL = "GPU VRAM"
WIRED_POOL = "the lesser of available RAM and the wired limit of the GPU"
_NO_GPU = ("cpu", "metal")


@dataclass(frozen=True, slots=True)
class Budget:
    """What a node may give a new model now, and at most."""

    usable_bytes: int
    ceiling_bytes: int
    pool: str = RAM_POOL


@dataclass(frozen=True, slots=True)
class PlacementCandidate:
    """A node; memory is None until it was read, backends until it has told them."""

    node_id: NodeId
    memory: MemoryUsage | None
    accelerator: AcceleratorMetrics | None = None
    backends: frozenset[str] | None = None
    participation: str = "full"
    staged: float = 0.0
    files_problem: str | None = None
    draining: bool = False
    promised_bytes: int = 0
    """Given to instances that have not taken it yet."""
    credit_bytes: int | None = None
    """Free memory as it will be when instances that were just deleted are gone."""
    vram_credit_bytes: int | None = None
    """The same of the GPU."""
    wired_limit_bytes: int | None = None
    """The most that the GPU of a Mac may wire."""
    dequantize: DequantizeMode = "off"
    """Whether its runners may unpack weights to float32."""

    @property
    def budget(self) -> Budget | None:
        """None when the memory that models go to has not been read."""
        if not any(map(_is_gpu_tag, self.backends or ())):
            return self._ram_budget()
        card = self.accelerator
        if card is None:
            return None
        if card.vendor == "cpu":
            return Budget(0, 0, VRAM_POOL)  # built for a GPU that is not there
        now = usable_vram_bytes(card, self.memory)
        return self._ram_budget() if now is None else self._vram_budget(card, now)

    def _vram_budget(self, card: AcceleratorMetrics, free: int) -> Budget:
        now, most = free - self.promised_bytes, max(free, vram_set_bytes(card))
        if self.vram_credit_bytes is not None:
            now = max(now, min(self.vram_credit_bytes, most))
        return Budget(max(0, now), most, VRAM_POOL)

    def _ram_budget(self) -> Budget | None:
        if self.memory is None:
            return None
        now = usable_bytes(self.memory) - self.promised_bytes
        if self.credit_bytes is not None:
            now = max(now, usable_bytes(_with_available(self.memory, self.credit_bytes)))
        ceiling = working_set_bytes(self.memory)
        if self.wired_limit_bytes is None or self.wired_limit_bytes >= ceiling:
            return Budget(max(0, now), ceiling)
        limit = self.wired_limit_bytes
        return Budget(max(0, min(now, limit - self.promised_bytes)), limit, WIRED_POOL)


@dataclass(frozen=True)
class Cluster:
    """Everything the planner looks at."""

    nodes: tuple[PlacementCandidate, ...]
    links: Links = field(default_factory=Links)
    rdma: Mapping[NodeId, NodeRdma] = field(default_factory=dict)
    """Only to explain why RDMA does not work; `links` say where it does."""
    os_versions: Mapping[NodeId, str] = field(default_factory=dict)

    @cached_property
    def node_ids(self) -> frozenset[NodeId]:
        return frozenset(node.node_id for node in self.nodes)

    @cached_property
    def leaves(self) -> frozenset[NodeId]:
        """Nodes with at most one neighbour: using them leaves the others for larger models."""
        count = dict.fromkeys(self.node_ids, 0)
        for source, sink in self.links.ring:
            if source in count and (sink, source) in self.links.ring:
                count[source] += 1
        return frozenset(node_id for node_id, found in count.items() if found <= 1)


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What is not in the state: nodes by id, all optional."""

    draining: Collection[NodeId] = frozenset()
    credits: Mapping[NodeId, int] = field(default_factory=dict)
    vram_credits: Mapping[NodeId, int] = field(default_factory=dict)
    files_problems: Mapping[NodeId, str] = field(default_factory=dict)
    staged: Mapping[NodeId, float] = field(default_factory=dict)
    backends: Mapping[NodeId, frozenset[str]] = field(default_factory=dict)
    participation: Mapping[NodeId, str] = field(default_factory=dict)
    rdma: Mapping[NodeId, NodeRdma] = field(default_factory=dict)
    wired_limits: Mapping[NodeId, int] = field(default_factory=dict)
    dequantize: Mapping[NodeId, DequantizeMode] = field(default_factory=dict)


NOTHING_SPECIAL = PlanInputs()


def cluster_of(state: State, model_id: ModelId, inputs: PlanInputs = NOTHING_SPECIAL) -> Cluster:
    """The nodes and links of a merged state (with readings), for placing this model."""
    promised = promised_bytes(state)
    candidates = []
    for node_id in state.topology.nodes:
        system = state.node_system.get(node_id)
        staged = inputs.staged.get(node_id)
        candidates.append(
            PlacementCandidate(
                node_id,
                state.node_memory.get(node_id),
                accelerator=None if system is None else system.accelerator,
                backends=inputs.backends.get(node_id),
                participation=inputs.participation.get(node_id, "full"),
                staged=staged_part(state, node_id, model_id) if staged is None else staged,
                files_problem=inputs.files_problems.get(node_id),
                draining=node_id in inputs.draining,
                promised_bytes=promised.get(node_id, 0),
                credit_bytes=inputs.credits.get(node_id),
                vram_credit_bytes=inputs.vram_credits.get(node_id),
                wired_limit_bytes=inputs.wired_limits.get(node_id),
                dequantize=inputs.dequantize.get(node_id, "off"),
            )
        )
    versions = {node: one.os_version for node, one in state.node_identities.items()}
    return Cluster(tuple(candidates), links_of(state), inputs.rdma, versions)


def staged_part(state: State, node_id: NodeId, model_id: ModelId) -> float:
    """How much of the model's files a node has, from 0 to 1."""
    for progress in state.downloads.get(node_id, ()):
        if progress.shard_metadata.model_card.model_id == model_id:
            return _part_done(progress)
    return 0.0


def _part_done(progress: DownloadProgress) -> float:
    match progress:
        case DownloadCompleted():
            return 1.0
        case DownloadOngoing(download_progress=data):
            return data.downloaded.in_bytes / max(1, data.total.in_bytes)
        case DownloadPending(downloaded=downloaded, total=total):
            return downloaded.in_bytes / max(1, total.in_bytes)
        case DownloadFailed():
            return 0.0


def _with_available(memory: MemoryUsage, available: int) -> MemoryUsage:
    capped = max(0, min(available, memory.ram_total.in_bytes))
    return memory.model_copy(update={"ram_available": Memory.of(capped)})


def _is_gpu_tag(tag: str) -> bool:
    engine, _, compute = tag.partition("-")
    return bool(engine and compute) and compute not in _NO_GPU
