"""Instances that cannot stay where they are move, within bounds, and say why."""

from __future__ import annotations

from typing import Any

import pytest

from skulkd.cluster.codec import dump, load_as
from skulkd.cluster.messages import Entries, JournalEntry, MasterSession
from skulkd.cluster.reducer import apply
from skulkd.placement.candidates import PlanInputs
from skulkd.placement.orders import PlaceOrder, decide_place
from skulkd.placement.records import left_out
from skulkd.placement.refusals import MovedTooOften, Refusal
from skulkd.placement.repairs import find, refused_event, repair_events, repairs, replanned
from skulkd.wire.base import Memory
from skulkd.wire.downloads import DownloadCompleted, DownloadFailed
from skulkd.wire.events import InstanceCreated, InstanceDeleted, InstanceMoved, RunnerStatusUpdated
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.machine import NodeIdentity
from skulkd.wire.placement_record import PlacementRecord
from skulkd.wire.runners import MEMORY_GUARD, STAGING_FAILED, RunnerFailed, RunnerReady
from skulkd.wire.shards import TensorShardMetadata
from skulkd.wire.state import State
from skulkd.wire.topology import Edge, Multiaddr, SocketConnection, Topology
from tests.placement.builders import a_card, memory_of

ID = InstanceId("inst")
INPUTS = PlanInputs()


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
    instance = decide_place(order, state, INPUTS).instance
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
    again = replanned(instance, a_state("bcd"), INPUTS)
    assert (again.instance_id, len(nodes_of(again))) == (ID, 2)
    shards = again.shard_assignments.runner_to_shard
    assert {type(shard) for shard in shards.values()} == {TensorShardMetadata}
    assert not set(shards) & set(instance.shard_assignments.runner_to_shard), "new runners"
    assert nodes_of(replanned(instance, a_state("c"), INPUTS)) == ["c"]


def test_what_fits_nowhere_is_refused_with_the_reason_of_the_widest_try() -> None:
    instance = placed(a_state("ab"), 12).instances[ID]
    with pytest.raises(Refusal) as caught:
        replanned(instance, a_state("a"), INPUTS)
    assert "min_nodes=2 is impossible" in str(caught.value)


def test_a_runner_without_room_moves_its_instance_one_node_wider() -> None:
    state = with_runner(
        placed(a_state("abc")), "a", RunnerFailed(error_message=f"{MEMORY_GUARD}: needs more")
    )
    [repair] = repairs(state)
    assert repair.min_nodes == 2
    deleted, told, created = repair_events(repair, state, INPUTS)
    assert isinstance(deleted, InstanceDeleted)
    assert isinstance(told, InstanceMoved)
    assert isinstance(created, InstanceCreated)
    assert (told.cause, told.from_nodes, told.to_nodes) == (
        MEMORY_GUARD, ["a"], nodes_of(created.instance)
    )  # fmt: skip
    assert (told.attempt, told.most) == (1, 3)
    assert "needs more" in told.reason
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
        repair_events(repair, state, INPUTS)


def test_files_that_cannot_be_brought_move_the_instance_elsewhere() -> None:
    state = with_runner(placed(a_state("ab")), "a", staging_failed("a"))
    [repair] = repairs(state)
    assert "a is full" in repair.reason
    events = repair_events(repair, state, INPUTS)
    assert isinstance(events[-1], InstanceCreated)
    assert nodes_of(events[-1].instance) == ["b"]


def test_a_download_that_failed_before_this_placement_moves_nothing() -> None:
    assert repairs(with_download(placed(a_state("ab")), "a", failed=True)) == []


def test_a_runner_whose_files_cannot_be_brought_moves_its_instance_elsewhere() -> None:
    failed = RunnerFailed(error_message=f"not started: {STAGING_FAILED}: the store is gone")
    state = with_runner(placed(a_state("ab")), "a", failed)
    [repair] = repairs(state)
    assert set(repair.failed) == {"a"}
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


def after(state: State, events: list[Any]) -> State:
    for event in events:
        state = apply(state, event, state.last_event_applied_idx + 1)
    return state


def staging_failed(node: str) -> RunnerFailed:
    return RunnerFailed(error_message=f"not started: {STAGING_FAILED}: {node} is full")


def test_a_node_that_failed_is_not_tried_again_after_the_next_one_failed() -> None:
    """The first runner's words are gone with it; the record still knows."""
    state = placed(a_state("abc"))
    seen = []
    for attempt in (1, 2):
        [node] = nodes_of(state.instances[ID])
        seen.append(node)
        state = with_runner(state, node, staging_failed(node))
        [repair] = repairs(state)
        events = repair_events(repair, state, INPUTS)
        [told] = [event for event in events if isinstance(event, InstanceMoved)]
        assert (told.attempt, told.most, told.from_nodes) == (attempt, 3, [node])
        state = after(state, events)
    [node] = nodes_of(state.instances[ID])
    assert sorted([*seen, node]) == ["a", "b", "c"]
    state = with_runner(state, node, staging_failed(node))
    [repair] = repairs(state)
    with pytest.raises(Refusal) as caught:
        repair_events(repair, state, INPUTS)
    refused = refused_event(repair, state, caught.value.kind, str(caught.value))
    assert (refused.attempt, refused.most, refused.nodes) == (3, 3, [node])
    state = after(state, [refused])
    record = state.instances[ID].record
    assert record is not None
    assert record.stuck == str(caught.value)
    assert [move.attempt for move in record.moves] == [1, 2]
    assert set(record.failed) == set(seen)


def test_moves_are_bounded_whatever_the_nodes_say_and_counted_anew_once_it_serves() -> None:
    state = placed(a_state("ab"))
    record = PlacementRecord(attempts=2)
    [node] = nodes_of(state.instances[ID])
    tired = state.instances[ID].model_copy(update={"record": record})
    state = state.model_copy(update={"instances": {ID: tired}})
    failed = with_runner(state, node, staging_failed(node))
    with pytest.raises(MovedTooOften):
        repair_events(repairs(failed)[0], failed, INPUTS)
    runner = tired.shard_assignments.node_to_runner[NodeId(node)]
    ready = RunnerStatusUpdated(runner_id=runner, runner_status=RunnerReady())
    served = with_runner(after(state, [ready]), node, staging_failed(node))
    events = repair_events(repairs(served)[0], served, INPUTS)
    assert [event.attempt for event in events if isinstance(event, InstanceMoved)] == [1]


def test_exclusions_are_in_the_record_and_hold_for_a_node_that_has_a_new_id() -> None:
    named = {NodeId(n): NodeIdentity(friendly_name=f"kite-{n}") for n in "abc"}
    state = a_state("abc").model_copy(update={"node_identities": named})
    state = placed(state, excluded=[NodeId("c")])
    [node] = nodes_of(state.instances[ID])
    other = "b" if node == "a" else "a"
    # c is back as d; nothing but the instance itself tells that it was excluded.
    names = {NodeId(n): NodeIdentity(friendly_name=f"kite-{n}") for n in "ab"}
    names[NodeId("d")] = NodeIdentity(friendly_name="kite-c")
    later = a_state("abd").model_copy(
        update={"node_identities": names, "instances": state.instances}
    )
    assert left_out(later.instances[ID], later) == {"d"}
    failed = with_runner(later, node, staging_failed(node))
    events = repair_events(repairs(failed)[0], failed, INPUTS)
    assert isinstance(events[-1], InstanceCreated)
    assert nodes_of(events[-1].instance) == [other]
    assert left_out(events[-1].instance, later) == {"d"}, "and after the move as well"


def test_a_record_travels_between_nodes_and_is_no_part_of_an_answer() -> None:
    state = placed(a_state("ab"), excluded=[NodeId("b")])
    instance = state.instances[ID]
    created = JournalEntry(0, InstanceCreated(instance=instance))
    [back] = load_as(Entries, dump(Entries(MasterSession(1, NodeId("a")), (created,), 0))).entries
    assert back.event.instance == instance
    assert back.event.instance.record.excluded == {"b": "b"}
    assert "record" not in instance.model_dump_json()
    assert "record" not in state.model_dump_json()
