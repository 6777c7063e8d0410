"""What an instance's record says, and how it changes: exclusions, moves and their bound. Pure.

A record is a part of its instance, so whoever leads next finds it: exclusions are kept and moves
are counted through any number of masters.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from skulkd.placement.shape import UNKNOWN_SHAPE, ModelDimensions
from skulkd.wire.events import InstanceMoved, TaskFailed
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.placement_record import Move, OnDemand, PlacementRecord
from skulkd.wire.state import State
from skulkd.wire.tasks import BaseRequestTask

_KEPT_MOVES = 8
# What a node is called that has not told its name.
_NO_NAME = "Unknown"
_OPEN = frozenset({"Pending", "Running"})


def record_of(instance: Instance) -> PlacementRecord:
    """Empty when the instance was placed without one."""
    return instance.record or PlacementRecord()


def shape_of(instance: Instance) -> ModelDimensions:
    """What was known of the inside of its model when it was placed."""
    shape = record_of(instance).shape
    return ModelDimensions(**shape) if shape else UNKNOWN_SHAPE


def nodes_of(instance: Instance) -> list[NodeId]:
    return list(instance.shard_assignments.node_to_runner)


def named(nodes: list[NodeId], state: State) -> dict[NodeId, str]:
    """The names of nodes, as far as they have told one."""
    found: dict[NodeId, str] = {}
    for node in nodes:
        identity = state.node_identities.get(node)
        known = identity is not None and identity.friendly_name not in ("", _NO_NAME)
        found[node] = identity.friendly_name if identity and known else str(node)
    return found


def rank_zero_node(instance: Instance) -> NodeId:
    """The node of rank 0, which accepts requests for the instance."""
    shards = instance.shard_assignments
    return next(
        node
        for node, runner_id in shards.node_to_runner.items()
        if shards.runner_to_shard[runner_id].device_rank == 0
    )


def left_out(instance: Instance, state: State) -> frozenset[NodeId]:
    """Nodes on which the instance must not be, as it was ordered; ids may be new, names last."""
    record = record_of(instance)
    here = named(state.topology.nodes, state)
    excluded = {node for node in here if _is_among(node, here[node], record.excluded)}
    if record.only:
        excluded |= {node for node in here if not _is_among(node, here[node], record.only)}
    return frozenset(excluded)


def most_moves(state: State) -> int:
    """Each move leaves a node behind or needs one more, so there are no more than nodes."""
    return max(1, len(state.topology.nodes))


def moved(
    old: Instance,
    new: Instance,
    move: Move,
    failed: Mapping[NodeId, str] | None = None,
) -> tuple[InstanceMoved, Instance]:
    """The event that tells of a move, and the new instance with its record."""
    record = record_of(old)
    update = {
        "failed": {**record.failed, **(failed or {})},
        "attempts": record.attempts if move.most is None else move.attempt,
        "moves": [*record.moves, move][-_KEPT_MOVES:],
        "stuck": None,
        "unpacked": record_of(new).unpacked,
    }
    event = InstanceMoved(
        instance_id=old.instance_id,
        model_id=old.shard_assignments.model_id,
        cause=move.cause,
        from_nodes=move.from_nodes,
        to_nodes=move.to_nodes,
        names=move.names,
        reason=move.reason,
        attempt=move.attempt,
        most=move.most,
    )
    return event, new.model_copy(update={"record": record.model_copy(update=update)})


def failed_tasks(
    state: State, instances: Container[InstanceId], error_type: str, message: str
) -> list[TaskFailed]:
    """Events that fail every open task of instances that lost a node or are moved."""
    return [
        TaskFailed(task_id=task_id, error_type=error_type, error_message=message)
        for task_id, task in state.tasks.items()
        if task.instance_id in instances and task.task_status in _OPEN
    ]


def has_work(state: State, instance_id: InstanceId) -> bool:
    """Whether a client's request is open there; loading and warming up are no work."""
    return any(
        task.instance_id == instance_id
        and task.task_status in _OPEN
        and isinstance(task, BaseRequestTask)
        for task in state.tasks.values()
    )


def lost_move(old: Instance, new: Instance, names: Mapping[NodeId, str], reason: str) -> Move:
    """A move because a node is gone; those have no bound, for none of them is of our making."""
    earlier = [move for move in record_of(old).moves if move.cause == "node-lost"]
    both = [*nodes_of(old), *nodes_of(new)]
    return Move(
        cause="node-lost",
        from_nodes=nodes_of(old),
        to_nodes=nodes_of(new),
        names={node: names.get(node, str(node)) for node in both},
        reason=reason,
        attempt=len(earlier) + 1,
    )


def with_stuck(instance: Instance, why: str) -> Instance:
    record = record_of(instance).model_copy(update={"stuck": why})
    return instance.model_copy(update={"record": record})


def with_on_demand(instance: Instance, on_demand: OnDemand | None) -> Instance:
    record = record_of(instance).model_copy(update={"on_demand": on_demand})
    return instance.model_copy(update={"record": record})


def needs_settling(instance: Instance) -> bool:
    """Whether the record speaks of trouble that is over once the instance serves."""
    record = instance.record
    return record is not None and bool(record.attempts or record.failed or record.stuck)


def settled(instance: Instance) -> Instance:
    """It serves: what failed before is no reason any more, and moves are counted anew."""
    update = {"failed": {}, "attempts": 0, "stuck": None}
    return instance.model_copy(update={"record": record_of(instance).model_copy(update=update)})


def _is_among(node: NodeId, name: str, those: Mapping[NodeId, str]) -> bool:
    return node in those or name in those.values()
