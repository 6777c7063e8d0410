"""Who is unloaded: never one with work or of an operator, the least recently used first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.cluster.reducer import apply
from skulkd.placement.candidates import NOTHING_SPECIAL
from skulkd.placement.orders import (
    KeepOrder,
    PlaceOrder,
    UnloadOrder,
    decide_keep,
    decide_place,
    decide_unload,
)
from skulkd.placement.promises import shares_of
from skulkd.placement.records import record_of
from skulkd.placement.refusals import (
    DoesNotFit,
    InstanceBusy,
    NotOnDemand,
    RoomLater,
    UnknownInstance,
)
from skulkd.placement.unloading import (
    FIRST_USE_S,
    LastUses,
    due,
    fits_without,
    next_due_s,
    unloadable,
    victims,
)
from skulkd.requests.loading import as_request_error
from skulkd.wire.base import Memory
from skulkd.wire.events import Event
from skulkd.wire.ids import InstanceId, ModelId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.placement_record import OnDemand
from skulkd.wire.runners import RunnerFailed, RunnerLoading, RunnerReady, RunnerStatus
from skulkd.wire.state import State
from skulkd.wire.topology import Topology
from tests.daemon.builders import a_task
from tests.placement.builders import a_card, memory_of

NODE = NodeId("node-a")
TOTAL_GIB = 64.0
KEEP_S = 300.0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def empty() -> State:
    memory = {NODE: memory_of(TOTAL_GIB)}
    return State(topology=Topology(nodes=[NODE], connections={}), node_memory=memory)


def an_order(name: str, gib: float, keep_s: float | None = KEEP_S) -> PlaceOrder:
    card = a_card(gib, model_id=ModelId(f"org/{name}"))
    return PlaceOrder(
        instance_id=InstanceId(name), card=card, on_demand=OnDemand(keep_alive_seconds=keep_s)
    )


def applied(state: State, *events: Event) -> State:
    for event in events:
        state = apply(state, event, state.last_event_applied_idx + 1)
    return state


def placed(state: State, order: PlaceOrder, status: RunnerStatus | None = None) -> State:
    """The state with the order carried out, and the node's memory taken once it has loaded."""
    decided = decide_place(order, state, NOTHING_SPECIAL)
    [(_, need, runner)] = shares_of(decided.instance)
    state = applied(state, *decided.events)
    runners: Mapping[RunnerId, RunnerStatus] = {runner: status or RunnerReady()}
    memory = state.node_memory[NODE]
    if not isinstance(runners[runner], RunnerReady):
        need = 0
    free = Memory.of(memory.ram_available.in_bytes - need)
    readings = {NODE: memory.model_copy(update={"ram_available": free})}
    return state.model_copy(
        update={"runners": {**state.runners, **runners}, "node_memory": readings}
    )


def working(state: State, instance_id: str) -> State:
    task = a_task(f"task-{instance_id}", instance_id)
    return state.model_copy(update={"tasks": {**state.tasks, TaskId(task.task_id): task}})


def ids(instances: list[Instance]) -> list[str]:
    return [one.instance_id for one in instances]


def test_idle_time_counts_from_the_end_of_work_and_from_when_it_serves() -> None:
    clock = Clock()
    uses = LastUses(clock)
    loading = placed(empty(), an_order("m", 4), RunnerLoading(layers_loaded=0, total_layers=2))
    assert uses.watch(loading)
    clock.now += 10_000
    uses.watch(loading)
    assert due(loading, uses) == [] and next_due_s(loading, uses) is None
    ready = placed(empty(), an_order("m", 4))
    assert uses.watch(ready), "it became idle"
    assert next_due_s(ready, uses) == KEEP_S
    clock.now += 100
    busy = working(ready, "m")
    uses.watch(busy)
    clock.now += 10_000
    assert due(busy, uses) == []
    assert uses.watch(ready)
    clock.now += KEEP_S - 1
    assert due(ready, uses) == []
    clock.now += 1
    assert ids(due(ready, uses)) == ["m"]
    assert uses.watch(empty()) and not uses.watch(empty())


def test_somebody_waited_for_a_model_that_has_served_nobody_yet() -> None:
    clock = Clock()
    uses = LastUses(clock)
    state = placed(empty(), an_order("m", 4, keep_s=0))
    uses.watch(state)
    assert next_due_s(state, uses) == FIRST_USE_S
    uses.watch(working(state, "m"))
    uses.watch(state)
    assert ids(due(state, uses)) == ["m"]


def test_a_failed_instance_is_idle_and_one_kept_forever_goes_for_memory_only() -> None:
    clock = Clock()
    uses = LastUses(clock)
    failed = RunnerFailed(error_message="no")
    state = placed(empty(), an_order("failed", 4), failed)
    state = placed(state, an_order("forever", 4, keep_s=None))
    uses.watch(state)
    assert ids(unloadable(state, uses)) == ["failed"], "somebody waits for the other"
    clock.now += 1e9
    assert ids(due(state, uses)) == ["failed"]
    assert set(ids(unloadable(state, uses))) == {"failed", "forever"}


@dataclass(frozen=True)
class Model:
    gib: float
    kind: str
    idle_s: float


models = st.builds(
    Model,
    gib=st.sampled_from([2.0, 4.0, 8.0]),
    kind=st.sampled_from(["idle", "operator", "working", "loading", "awaited"]),
    idle_s=st.floats(0, 10_000),
)


def a_cluster(rows: list[Model]) -> tuple[State, LastUses]:
    clock, state = Clock(), empty()
    uses = LastUses(clock)
    latest = clock.now + max((row.idle_s for row in rows), default=0.0)

    def age(one: tuple[int, Model]) -> float:
        return 0.0 if one[1].kind == "awaited" else -one[1].idle_s

    for number, row in sorted(enumerate(rows), key=age):
        order = an_order(f"m{number}", row.gib)
        if row.kind == "operator":
            order = order.model_copy(update={"on_demand": None})
        loading = RunnerLoading(layers_loaded=0, total_layers=2)
        state = placed(state, order, loading if row.kind == "loading" else None)
        if row.kind == "working":
            state = working(state, f"m{number}")
        clock.now = latest if row.kind == "awaited" else latest - row.idle_s
        if row.kind == "idle":
            uses.watch(working(state, f"m{number}"))
        uses.watch(state)
    clock.now = latest
    return state, uses


@given(rows=st.lists(models, max_size=4), wanted=st.sampled_from([4.0, 16.0, 32.0, 60.0]))
def test_no_more_go_than_the_least_recently_used_that_are_needed(
    rows: list[Model], wanted: float
) -> None:
    state, uses = a_cluster(rows)
    order = an_order("wanted", wanted)
    if fits_without(order, state, NOTHING_SPECIAL, []):
        return
    going = victims(order, state, NOTHING_SPECIAL, uses)
    free = unloadable(state, uses)
    kinds = {f"m{number}": row.kind for number, row in enumerate(rows)}
    assert all(kinds[one.instance_id] == "idle" for one in going)
    if not going:
        assert not fits_without(order, state, NOTHING_SPECIAL, free)
        return
    assert fits_without(order, state, NOTHING_SPECIAL, going)
    for one in going:
        fewer = [other for other in going if other is not one]
        assert not fits_without(order, state, NOTHING_SPECIAL, fewer)
    newest = min(uses.idle_s(one.instance_id) for one in going)
    older = [one for one in free if uses.idle_s(one.instance_id) > newest]
    assert not fits_without(order, state, NOTHING_SPECIAL, older)


def test_room_that_models_in_use_could_make_is_worth_another_try() -> None:
    state, order = empty(), an_order("huge", 500)
    with pytest.raises(DoesNotFit) as refused:
        decide_place(order, state, NOTHING_SPECIAL)
    later = RoomLater(refused.value)
    assert later.pending and later.data == refused.value.data
    assert as_request_error(later, "huge").retry_after_s is not None
    assert as_request_error(refused.value, "huge").code == "cannot_place"


def test_the_decision_checks_again_what_the_policy_saw() -> None:
    state = placed(empty(), an_order("m", 4))
    order = UnloadOrder(instance_id=InstanceId("m"), cause="idle", idle_seconds=5)
    with pytest.raises(InstanceBusy):
        decide_unload(order, working(state, "m"))
    with pytest.raises(UnknownInstance):
        decide_unload(order, empty())
    events = decide_unload(order, state).events
    assert [type(event).__name__ for event in events] == ["InstanceUnloaded", "InstanceDeleted"]
    assert applied(state, *events).instances == {}


def test_an_operator_who_wants_it_there_makes_it_stay() -> None:
    state = placed(empty(), an_order("m", 4))
    assert (
        decide_place(
            an_order("m2", 4).model_copy(
                update={"ensure": True, "card": a_card(4, model_id="org/m")}
            ),
            state,
            NOTHING_SPECIAL,
        ).events
        == ()
    )
    wanted = an_order("m3", 4).model_copy(
        update={"ensure": True, "on_demand": None, "card": a_card(4, model_id="org/m")}
    )
    [event] = decide_place(wanted, state, NOTHING_SPECIAL).events
    state = applied(state, event)
    [instance] = state.instances.values()
    assert record_of(instance).on_demand is None
    unload = UnloadOrder(instance_id=InstanceId("m"), cause="idle")
    keep = KeepOrder(instance_id=InstanceId("m"), on_demand=OnDemand(keep_alive_seconds=0))
    for decide in (lambda: decide_unload(unload, state), lambda: decide_keep(keep, state)):
        with pytest.raises(NotOnDemand):
            decide()


def test_a_keep_alive_is_journaled_once_and_travels_in_the_record() -> None:
    state = placed(empty(), an_order("m", 4))
    keep = KeepOrder(instance_id=InstanceId("m"), on_demand=OnDemand(keep_alive_seconds=7))
    [event] = decide_keep(keep, state).events
    state = applied(state, event)
    [instance] = state.instances.values()
    assert record_of(instance).on_demand == keep.on_demand
    assert decide_keep(keep, state).events == ()
    whole = instance.model_dump_json(context="whole")
    assert record_of(type(instance).model_validate_json(whole)).on_demand == keep.on_demand
