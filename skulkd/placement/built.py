"""The instance that carries out a plan: shards, addresses, names. Pure; chance is handed in."""

from __future__ import annotations

from collections.abc import Sequence

from skulkd.placement.candidates import Cluster, PlacementCandidate
from skulkd.placement.eligible import node_backends
from skulkd.placement.fresh import Fresh
from skulkd.placement.links import Links
from skulkd.placement.planner import PlacementPlan, PlannedRank, plan
from skulkd.placement.wish import Wish
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Host, Instance, MlxJacclInstance, MlxRingInstance
from skulkd.wire.placement_record import PlacementRecord
from skulkd.wire.shards import (
    PipelineShardMetadata,
    ShardAssignments,
    ShardMetadata,
    TensorShardMetadata,
)

EVERY_INTERFACE = "0.0.0.0"  # noqa: S104 - how an instance spells a rank's own address
# A documentation address: a rank that is no neighbour is never dialled.
_NOBODY = Host(ip="198.51.100.1", port=0)


def place(
    wish: Wish, nodes: Sequence[PlacementCandidate], fresh: Fresh, links: Links | None = None
) -> Instance:
    """The best placement on these nodes as an instance. Raises Refusal."""
    cluster = Cluster(tuple(nodes), links or Links())
    return instance_of(plan(wish, cluster), cluster.links, fresh)


def instance_of(found: PlacementPlan, links: Links, fresh: Fresh) -> Instance:
    """`fresh` must have a runner id for each rank."""
    assignments = ShardAssignments(
        model_id=found.wish.card.model_id,
        runner_to_shard={
            runner_id: _shard(found, rank, index)
            for index, (rank, runner_id) in enumerate(
                zip(found.ranks, fresh.runner_ids, strict=True)
            )
        },
        node_to_runner=dict(zip(found.node_ids, fresh.runner_ids, strict=True)),
    )
    record = PlacementRecord(unpacked=True) if found.unpacked else None
    if found.meta == "MlxJaccl":
        return MlxJacclInstance(
            instance_id=fresh.instance_id,
            shard_assignments=assignments,
            context_token_limit=found.context_tokens,
            jaccl_devices=jaccl_devices(found.node_ids, links),
            jaccl_coordinators=jaccl_coordinators(found.node_ids, links, fresh.port),
            record=record,
        )
    return MlxRingInstance(
        instance_id=fresh.instance_id,
        shard_assignments=assignments,
        context_token_limit=found.context_tokens,
        hosts_by_node=ring_hosts(found.node_ids, links, fresh.port),
        ephemeral_port=fresh.port,
        record=record,
    )


def ring_hosts(ring: Sequence[NodeId], links: Links, port: int) -> dict[NodeId, list[Host]]:
    """For each node the address of every rank as it must dial it: only neighbours are real."""
    size = len(ring)
    hosts: dict[NodeId, list[Host]] = {}
    for index, node_id in enumerate(ring):
        row = [_NOBODY] * size
        for near in {(index - 1) % size, (index + 1) % size} - {index}:
            row[near] = Host(ip=links.ring[node_id, ring[near]][1], port=port)
        row[index] = Host(ip=EVERY_INTERFACE, port=port)
        hosts[node_id] = row
    return hosts


def jaccl_devices(ring: Sequence[NodeId], links: Links) -> list[list[str | None]]:
    """The interface of each rank toward each other; every pair has one, or it was not planned."""
    return [[None if one == other else links.rdma[one, other] for other in ring] for one in ring]


def jaccl_coordinators(ring: Sequence[NodeId], links: Links, port: int) -> dict[NodeId, str]:
    """Where each rank finds rank 0, which listens everywhere."""
    first, *others = ring
    dialled = {node: f"{links.coordinator[node, first]}:{port}" for node in others}
    return {first: f"{EVERY_INTERFACE}:{port}", **dialled}


def _shard(found: PlacementPlan, rank: PlannedRank, index: int) -> ShardMetadata:
    kind = TensorShardMetadata if found.sharding == "Tensor" else PipelineShardMetadata
    card = found.wish.card
    return kind(
        model_card=card,
        device_rank=index,
        world_size=len(found.ranks),
        resolved_backend=_backend(card, rank.node),
        start_layer=rank.start_layer,
        end_layer=rank.end_layer,
        n_layers=card.n_layers,
    )


def _backend(card: ModelCard, node: PlacementCandidate) -> str | None:
    """What computes there: preferred tags first, the others by name."""
    shared = node_backends(node) & set(card.placement.compatible_backends)
    ordered = [tag for tag in card.placement.backend_preference if tag in shared]
    return next(iter([*ordered, *sorted(shared)]), None)
