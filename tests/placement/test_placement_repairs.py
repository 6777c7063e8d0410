"""Instances that cannot stay where they are move, within bounds, and say why."""

from __future__ import annotations

from typing import Any

import pytest

from skulkd.placement.candidates import Circumstances
from skulkd.placement.orders import PlaceOrder, decide_place
from skulkd.placement.refusals import Refusal
from skulkd.placement.repairs import find, repair_events, repairs, replanned
from skulkd.wire.base import Memory
from skulkd.wire.downloads import DownloadCompleted, DownloadFailed
from skulkd.wire.events import InstanceCreated, InstanceDeleted
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import MEMORY_GUARD, STAGING_FAILED, RunnerFailed, RunnerReady
from skulkd.wire.shards import TensorShardMetadata
from skulkd.wire.state import State
from skulkd.wire.topology import Edge, Multiaddr, SocketConnection, Topology
from tests.placement.builders import a_card, memory_of

ID = InstanceId("inst")
AROUND = Circumstances()


def a_state(names: str, gib: float = 16) -> State:
    nodes = [NodeId(name) for name in names]
    edge: list[Edge] = [SocketConnection(sink_multiaddr=Multiaddr(address="/ip4/10.0.0.1/tcp/1"))]
    links = {one: {other: edge for other in nodes if other != one} for one in nodes}
    return State(
        topology=Topology(nodes=nodes, connections=links),
        node_memory={node: memory_of(gib) for node in nodes},
    )


def placed(state: State, gib: float = 4, **wish: Any) -> State:
    order = PlaceOrder(instance_id=ID, card=a_card(gib), **wish)
    instance = decide_place(order, state, AROUND).instance
    return state.model_copy(update={"instances": {ID: instance}})


def nodes_of(instance: Instance) -> list[str]:
    return list(instance.shard_assignments.node_to_runner)


def with_runner(state: State, node: str, status: RunnerFailed | RunnerReady) -> State:
    runner = state.instances[ID].shard_assignments.node_to_runner[NodeId(node)]
    return state.model_copy(update={"runners": {**state.runners, runner: status}})


def with_download(state: State, node: str, *, failed: bool) -> State:
    shard = next(iter(state.instances[ID].shard_assignments.runner_to_shard.values()))
    facts: dict[str, Any] = {"node_id": NodeId(node), "shard_metadata": shard}
    row = (
        DownloadFailed(**facts, error_message="disk full")
        if failed
        else DownloadCompleted(**facts, total=Memory.of(1))
    )
    return state.model_copy(update={"downloads": {**state.downloads, NodeId(node): [row]}})


def test_after_a_node_was_lost_the_width_is_kept_while_it_can_be() -> None:
    instance = placed(a_state("abc"), min_nodes=2, sharding="Tensor").instances[ID]
    again = replanned(instance, a_state("bcd"), AROUND)
    assert (again.instance_id, len(nodes_of(again))) == (ID, 2)
    shards = again.shard_assignments.runner_to_shard
    assert {type(shard) for shard in shards.values()} == {TensorShardMetadata}
    assert not set(shards) & set(instance.shard_assignments.runner_to_shard), "new runners"
    assert nodes_of(replanned(instance, a_state("c"), AROUND)) == ["c"]


def test_what_fits_nowhere_is_refused_with_the_reason_of_the_widest_try() -> None:
    instance = placed(a_state("ab"), 12).instances[ID]
    with pytest.raises(Refusal) as caught:
        replanned(instance, a_state("a"), AROUND)
    assert "min_nodes=2 is impossible" in str(caught.value)


def test_a_runner_without_room_moves_its_instance_one_node_wider() -> None:
    state = with_runner(
        placed(a_state("abc")), "a", RunnerFailed(error_message=f"{MEMORY_GUARD}: needs more")
    )
    [repair] = repairs(state)
    assert repair.min_nodes == 2
    deleted, created = repair_events(repair, state, AROUND)
    assert isinstance(deleted, InstanceDeleted)
    assert isinstance(created, InstanceCreated)
    assert (created.instance.instance_id, len(nodes_of(created.instance))) == (ID, 2)
    assert find(state, ID) == repair


def test_widening_ends_with_the_cluster() -> None:
    state = with_runner(
        placed(a_state("ab"), min_nodes=2),
        "a",
        RunnerFailed(error_message=f"{MEMORY_GUARD}: again"),
    )
    [repair] = repairs(state)
    with pytest.raises(Refusal):
        repair_events(repair, state, AROUND)


def test_files_that_cannot_be_brought_move_the_instance_elsewhere() -> None:
    state = with_download(placed(a_state("ab")), "a", failed=True)
    [repair] = repairs(state)
    assert "disk full" in repair.reason
    events = repair_events(repair, state, AROUND)
    assert isinstance(events[-1], InstanceCreated)
    assert nodes_of(events[-1].instance) == ["b"]
    both = with_download(state, "b", failed=True)
    with pytest.raises(Refusal):
        repair_events(repairs(both)[0], both, AROUND)


def test_a_runner_whose_files_cannot_be_brought_moves_its_instance_elsewhere() -> None:
    failed = RunnerFailed(error_message=f"not started: {STAGING_FAILED}: the store is gone")
    state = with_runner(placed(a_state("ab")), "a", failed)
    [repair] = repairs(state)
    assert repair.excluded == {"a"}
    assert "the store is gone" in repair.reason


def test_what_serves_or_failed_for_another_reason_stays() -> None:
    serving = with_runner(
        with_download(placed(a_state("ab")), "a", failed=True), "a", RunnerReady()
    )
    assert repairs(serving) == []
    crashed = with_runner(placed(a_state("ab")), "a", RunnerFailed(error_message="crashed"))
    assert repairs(crashed) == []
    assert repairs(with_download(placed(a_state("ab")), "a", failed=False)) == []
    assert find(crashed, ID) is None
