"""Instances that are given whole: whether they can be carried out here and now. Pure.

The reference takes any such instance as it is and fails later, in the runners. Here every rank,
layer, address and byte is checked first, because whoever sends one is usually a program.
"""

from __future__ import annotations

from collections.abc import Sequence

from skulkd.placement.candidates import Cluster, PlacementCandidate
from skulkd.placement.memory import need_of
from skulkd.placement.promises import part_of
from skulkd.placement.refusals import (
    BadInstance,
    DoesNotFit,
    InfoPending,
    RejectedCycle,
    ShortNode,
    Taken,
    UnknownNode,
    gb,
)
from skulkd.placement.shape import UNKNOWN_SHAPE, ModelDimensions
from skulkd.placement.unpacking import Holder, plan_weights
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Instance, MlxJacclInstance, MlxRingInstance
from skulkd.wire.placement_record import PlacementRecord
from skulkd.wire.shards import (
    CfgShardMetadata,
    PipelineShardMetadata,
    ShardMetadata,
    TensorShardMetadata,
)
from skulkd.wire.state import State

_NO_IMAGES = "shards of image models cannot be served here"


def checked_instance(
    instance: Instance, state: State, cluster: Cluster, shape: ModelDimensions = UNKNOWN_SHAPE
) -> Instance:
    """The same with a context ceiling and a record of our own. Raises Refusal."""
    shards = _checked_ranks(instance)
    card = shards[0].model_card
    nodes = _known_nodes(instance, cluster)
    _check_addresses(instance, len(shards))
    _check_total(card, state)
    _check_places(card, nodes)
    holders = _checked_memory(nodes, shards, shape)
    # Looked at last: the order of refusals is that of the contract.
    _check_new(instance, state)
    weights = plan_weights(card, shape, holders)
    record = PlacementRecord(unpacked=weights.unpacked)
    update = {"context_token_limit": weights.context_tokens, "record": record}
    return instance.model_copy(update=update)


def _checked_ranks(instance: Instance) -> list[ShardMetadata]:
    """The shards in rank order, complete and of one model."""
    assignments = instance.shard_assignments
    runners, nodes = assignments.runner_to_shard, assignments.node_to_runner
    if not runners:
        raise BadInstance("the instance has no shards, so there is nothing to run")
    if sorted(nodes.values()) != sorted(runners):
        raise BadInstance("every runner needs exactly one node, and every node a runner of its own")
    shards = sorted(runners.values(), key=lambda shard: shard.device_rank)
    size = len(shards)
    if [shard.device_rank for shard in shards] != list(range(size)):
        raise BadInstance(f"the ranks of {size} shards must be 0 to {size - 1}, each once")
    if any(shard.world_size != size for shard in shards):
        raise BadInstance(f"the world size of every shard must be {size}, the number of shards")
    if any(shard.model_card.model_id != assignments.model_id for shard in shards):
        raise BadInstance("a shard's card is of another model than the instance")
    if any(shard.model_card != shards[0].model_card for shard in shards):
        raise BadInstance("the shards disagree about the model's card")
    _check_layers(shards)
    return shards


def _check_layers(shards: Sequence[ShardMetadata]) -> None:
    layers = shards[0].model_card.n_layers
    if any(shard.n_layers != layers for shard in shards):
        raise BadInstance(f"the model has {layers} layers, and a shard says otherwise")
    if any(isinstance(shard, CfgShardMetadata) for shard in shards):
        raise BadInstance(_NO_IMAGES)
    ranges = [(shard.start_layer, shard.end_layer) for shard in shards]
    if all(isinstance(shard, TensorShardMetadata) for shard in shards):
        if any(found != (0, layers) for found in ranges):
            raise BadInstance(f"a tensor shard holds a slice of all layers, 0 to {layers}")
        return
    if not all(isinstance(shard, PipelineShardMetadata) for shard in shards):
        raise BadInstance("all shards must be of the same kind")
    bounds = [0, *(end for _, end in ranges)]
    if [start for start, _ in ranges] != bounds[:-1] or bounds[-1] != layers:
        raise BadInstance(f"the layers of the ranks must follow each other from 0 to {layers}")
    if any(start >= end for start, end in ranges):
        raise BadInstance("every rank needs at least 1 layer")


def _check_addresses(instance: Instance, size: int) -> None:
    nodes = set(instance.shard_assignments.node_to_runner)
    match instance:
        case MlxRingInstance(hosts_by_node=hosts):
            if set(hosts) != nodes or any(len(row) != size for row in hosts.values()):
                raise BadInstance(f"hostsByNode needs {size} addresses for each of its nodes")
        case MlxJacclInstance(jaccl_devices=devices, jaccl_coordinators=coordinators):
            square = len(devices) == size and all(len(row) == size for row in devices)
            if not square:
                raise BadInstance(f"jacclDevices must have {size} rows of {size} interfaces")
            pairs = [(i, j) for i in range(size) for j in range(size) if i != j]
            if any(devices[i][j] is None for i, j in pairs):
                raise BadInstance("MlxJaccl needs all-to-all RDMA: a pair has no interface")
            if set(coordinators) != nodes:
                raise BadInstance("jacclCoordinators needs an address for each of its nodes")


def _known_nodes(instance: Instance, cluster: Cluster) -> list[PlacementCandidate]:
    """The nodes in rank order."""
    by_id = {node.node_id: node for node in cluster.nodes}
    assignments = instance.shard_assignments
    by_rank = sorted(
        assignments.node_to_runner,
        key=lambda node: assignments.runner_to_shard[assignments.node_to_runner[node]].device_rank,
    )
    if unknown := [node for node in by_rank if node not in by_id]:
        raise UnknownNode(unknown)
    return [by_id[node] for node in by_rank]


def _check_total(card: ModelCard, state: State) -> None:
    available = sum(memory.ram_available.in_bytes for memory in state.node_memory.values())
    required = card.storage_size.in_bytes
    if required > available:
        raise BadInstance(
            f"too little memory for {card.model_id}. Required: {gb(required)},"
            f" Available: {gb(available)}"
        )


def _check_places(card: ModelCard, nodes: Sequence[PlacementCandidate]) -> None:
    for node in nodes:
        if node.draining:
            raise BadInstance(f"{node.node_id} is draining and takes no new placement")
        if node.participation != "full":
            raise BadInstance(f"{node.node_id} only takes part as {node.participation}")
        if node.files_problem is not None:
            raise BadInstance(
                node.files_problem,
                [f"bring its files: skulkctl model import PATH --id {card.model_id}"],
            )


def _checked_memory(
    nodes: Sequence[PlacementCandidate], shards: Sequence[ShardMetadata], shape: ModelDimensions
) -> list[Holder]:
    card = shards[0].model_card
    unread = [node.node_id for node in nodes if node.budget is None]
    if unread:
        raise InfoPending(len(nodes), len(nodes), unread)
    holders: list[Holder] = []
    short: list[ShortNode] = []
    for node, shard in zip(nodes, shards, strict=True):
        budget = node.budget
        part = part_of(shard)
        need = need_of(card, part, shape)
        if budget is None or need.total_bytes >= budget.usable_bytes:
            usable = 0 if budget is None else budget.usable_bytes
            short.append(ShortNode(node.node_id, need, usable))
        else:
            holders.append(Holder(part, budget, node.dequantize))
    if short:
        ids: tuple[NodeId, ...] = tuple(node.node_id for node in nodes)
        tensor = isinstance(shards[0], TensorShardMetadata)
        cycle = RejectedCycle(ids, "Tensor" if tensor else "Pipeline", tuple(short))
        raise DoesNotFit(card.model_id, card.storage_size.in_bytes, [cycle])
    return holders


def _check_new(instance: Instance, state: State) -> None:
    runners = {
        runner_id
        for other in state.instances.values()
        for runner_id in other.shard_assignments.runner_to_shard
    }
    mine = set(instance.shard_assignments.runner_to_shard)
    if instance.instance_id in state.instances or runners & mine:
        raise Taken("an instance with this id, or a runner with this id, is there already")
