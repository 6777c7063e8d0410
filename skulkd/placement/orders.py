"""What a node asks the master to decide about instances, and the pure decisions.

An order carries the id of the instance it wants, so that the same order sent twice, say after
a change of master, makes one instance. The master decides one order after the other on a state
that has all earlier ones in it; that is what keeps two placements off the same memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import NAMESPACE_OID, uuid5

from pydantic import Field

from skulkd.placement.built import instance_of
from skulkd.placement.candidates import Cluster, PlanInputs, cluster_of
from skulkd.placement.exact import checked_instance
from skulkd.placement.fresh import PORTS, RESERVED_PORTS, Fresh
from skulkd.placement.planner import plan
from skulkd.placement.records import has_work, named, nodes_of, record_of
from skulkd.placement.refusals import InstanceBusy, NotOnDemand, UnknownInstance
from skulkd.placement.repairs import find, repair_events
from skulkd.placement.shape import ModelDimensions
from skulkd.placement.wish import Wish
from skulkd.wire.base import CamelModel
from skulkd.wire.cards import ModelCard
from skulkd.wire.events import (
    Event,
    InstanceCreated,
    InstanceDeleted,
    InstanceKeepAliveChanged,
    InstanceRequested,
    InstanceUnloaded,
)
from skulkd.wire.ids import InstanceId, ModelId, NodeId, RunnerId
from skulkd.wire.instances import Instance, MlxJacclInstance, MlxRingInstance
from skulkd.wire.placement import DequantizeMode, InstanceMeta, Sharding
from skulkd.wire.placement_record import OnDemand, PlacementRecord, UnloadCause
from skulkd.wire.state import State


class NodeFacts(CamelModel):
    """What a node reports about itself for a placement; absent means not reported."""

    files_problem: str | None = None
    staged: float | None = None
    backends: list[str] | None = None
    participation: str = "full"
    dequantize: DequantizeMode = "off"
    """Whether its runners may unpack weights to float32; `off` wherever a GPU computes."""


class PlaceOrder(CamelModel):
    """Let the planner choose."""

    instance_id: InstanceId
    card: ModelCard
    sharding: Sharding = "Pipeline"
    meta: InstanceMeta = "MlxRing"
    min_nodes: int = 1
    excluded: list[NodeId] = Field(default_factory=list)
    only: list[NodeId] = Field(default_factory=list)
    required: list[NodeId] = Field(default_factory=list)
    shape: dict[str, int] = Field(default_factory=dict)
    news: dict[NodeId, NodeFacts] = Field(default_factory=dict)
    ensure: bool = False
    """Keep an instance of this model that is there instead of making another."""
    on_demand: OnDemand | None = Field(default=None, exclude_if=lambda value: value is None)
    """A request wants it; None: an operator does."""

    @property
    def wish(self) -> Wish:
        return Wish(
            card=self.card,
            sharding=self.sharding,
            meta=self.meta,
            min_nodes=self.min_nodes,
            excluded=frozenset(self.excluded),
            only=frozenset(self.only),
            required=frozenset(self.required),
            shape=ModelDimensions(**self.shape),
        )


class CreateOrder(CamelModel):
    """Create exactly this instance; the exclusions are for the day it has to move."""

    instance: Instance
    excluded: list[NodeId] = Field(default_factory=list)
    only: list[NodeId] = Field(default_factory=list)
    shape: dict[str, int] = Field(default_factory=dict)
    news: dict[NodeId, NodeFacts] = Field(default_factory=dict)


class DeleteOrder(CamelModel):
    instance_id: InstanceId


class KeepOrder(CamelModel):
    """How long an instance that was placed on demand stays without work."""

    instance_id: InstanceId
    on_demand: OnDemand


class UnloadOrder(CamelModel):
    """The end of an instance that was placed on demand and has no work."""

    instance_id: InstanceId
    cause: UnloadCause
    idle_seconds: float = 0.0
    wanted_by: ModelId | None = None


class RepairOrder(CamelModel):
    """Move an instance that failed where it is."""

    instance_id: InstanceId
    news: dict[NodeId, NodeFacts] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decided:
    """Events that carry an order out, and the instance it is about."""

    events: tuple[Event, ...]
    instance: Instance


def decide_place(order: PlaceOrder, state: State, inputs: PlanInputs) -> Decided:
    """A new instance where it fits best. Raises Refusal; then nothing is to be changed."""
    if (there := state.instances.get(order.instance_id)) is not None:
        return Decided((), there)
    if order.ensure and (there := _placed(order.card.model_id, state)) is not None:
        return Decided(_adopted(order, there), there)
    cluster = cluster_of(state, order.card.model_id, with_facts(inputs, order.news))
    planned = planned_instance(order.wish, cluster, state, order.instance_id)
    instance = _with_record(planned, order, state)
    created = InstanceCreated(instance=instance)
    if order.on_demand is None:
        return Decided((created,), instance)
    requested = InstanceRequested(
        instance_id=instance.instance_id,
        model_id=order.card.model_id,
        nodes=nodes_of(instance),
        on_demand=order.on_demand,
    )
    return Decided((requested, created), instance)


def _adopted(order: PlaceOrder, there: Instance) -> tuple[Event, ...]:
    """What an operator wants to be there is not unloaded any more."""
    if order.on_demand is not None or record_of(there).on_demand is None:
        return ()
    model_id = there.shard_assignments.model_id
    return (
        InstanceKeepAliveChanged(instance_id=there.instance_id, model_id=model_id, on_demand=None),
    )


def _placed(model_id: ModelId, state: State) -> Instance | None:
    """An instance of this model, by its id the first."""
    found = [
        instance
        for _, instance in sorted(state.instances.items())
        if instance.shard_assignments.model_id == model_id
    ]
    return found[0] if found else None


def decide_create(order: CreateOrder, state: State, inputs: PlanInputs) -> Decided:
    """Exactly this instance, if it can be carried out. Raises Refusal."""
    model_id = order.instance.shard_assignments.model_id
    cluster = cluster_of(state, model_id, with_facts(inputs, order.news))
    shape = ModelDimensions(**order.shape)
    checked = checked_instance(order.instance, state, cluster, shape)
    instance = _with_record(checked, order, state)
    return Decided((InstanceCreated(instance=instance),), instance)


def decide_delete(order: DeleteOrder, state: State) -> Decided:
    """The end of an instance. Raises UnknownInstance."""
    instance = state.instances.get(order.instance_id)
    if instance is None:
        raise UnknownInstance
    return Decided((InstanceDeleted(instance_id=order.instance_id),), instance)


def decide_keep(order: KeepOrder, state: State) -> Decided:
    """Raises UnknownInstance, NotOnDemand."""
    instance = _on_demand(order.instance_id, state)
    if record_of(instance).on_demand == order.on_demand:
        return Decided((), instance)
    event = InstanceKeepAliveChanged(
        instance_id=order.instance_id,
        model_id=instance.shard_assignments.model_id,
        on_demand=order.on_demand,
    )
    return Decided((event,), instance)


def decide_unload(order: UnloadOrder, state: State) -> Decided:
    """Raises UnknownInstance, NotOnDemand, InstanceBusy."""
    instance = _on_demand(order.instance_id, state)
    if has_work(state, order.instance_id):
        raise InstanceBusy(order.instance_id)
    unloaded = InstanceUnloaded(
        instance_id=order.instance_id,
        model_id=instance.shard_assignments.model_id,
        cause=order.cause,
        idle_seconds=order.idle_seconds,
        wanted_by=order.wanted_by,
    )
    return Decided((unloaded, InstanceDeleted(instance_id=order.instance_id)), instance)


def _on_demand(instance_id: InstanceId, state: State) -> Instance:
    """Raises UnknownInstance, NotOnDemand."""
    instance = state.instances.get(instance_id)
    if instance is None:
        raise UnknownInstance
    if record_of(instance).on_demand is None:
        raise NotOnDemand(instance_id)
    return instance


def decide_repair(order: RepairOrder, state: State, inputs: PlanInputs) -> Decided:
    """An instance that has failed where it is, elsewhere. Raises Refusal."""
    repair = find(state, order.instance_id)
    if repair is None:
        raise UnknownInstance
    events = repair_events(repair, state, with_facts(inputs, order.news))
    return Decided(tuple(events), repair.instance)


def _with_record(instance: Instance, order: PlaceOrder | CreateOrder, state: State) -> Instance:
    record = PlacementRecord(
        excluded=named(order.excluded, state),
        only=named(order.only, state),
        shape=order.shape,
        unpacked=record_of(instance).unpacked,
        on_demand=order.on_demand if isinstance(order, PlaceOrder) else None,
    )
    return instance.model_copy(update={"record": record})


def planned_instance(
    wish: Wish, cluster: Cluster, state: State, instance_id: InstanceId
) -> Instance:
    """What the planner makes of a wish, named after its id. Raises Refusal."""
    found = plan(wish, cluster)
    return instance_of(found, cluster.links, names_for(instance_id, found.node_ids, state))


def names_for(instance_id: InstanceId, nodes: Sequence[NodeId], state: State) -> Fresh:
    """Runner ids and a port that follow from the instance's id and are nobody else's.

    Both parts of a split cluster may place the same instance anew. Their runners are two, so the
    end of one must not be taken for the end of the other: the node is a part of the id.
    """
    runners = tuple(
        RunnerId(str(uuid5(NAMESPACE_OID, f"{instance_id}/{rank}/{node}")))
        for rank, node in enumerate(nodes)
    )
    taken = RESERVED_PORTS.union(map(_port, state.instances.values()))
    start = int.from_bytes(hashlib.sha256(instance_id.encode()).digest()[:4], "big")
    ports = (PORTS[(start + step) % len(PORTS)] for step in range(len(PORTS)))
    return Fresh(instance_id, runners, next(port for port in ports if port not in taken))


def with_facts(inputs: PlanInputs, facts: dict[NodeId, NodeFacts]) -> PlanInputs:
    """The inputs with what the nodes report about themselves."""
    backends = {
        node: frozenset(one.backends) for node, one in facts.items() if one.backends is not None
    }
    return replace(
        inputs,
        files_problems={
            node: one.files_problem for node, one in facts.items() if one.files_problem
        },
        staged={node: one.staged for node, one in facts.items() if one.staged is not None},
        backends=backends,
        participation={node: one.participation for node, one in facts.items()},
        dequantize={node: one.dequantize for node, one in facts.items()},
    )


def _port(instance: Instance) -> int:
    match instance:
        case MlxRingInstance(ephemeral_port=port):
            return port
        case MlxJacclInstance(jaccl_coordinators=coordinators):
            address = next(iter(coordinators.values()), "")
            digits = address.rpartition(":")[2]
            return int(digits) if digits.isdigit() else 0
