"""Memory that readings do not show: promised, and on its way back from deleted instances."""

from __future__ import annotations

from collections.abc import Mapping

from skulkd.placement.candidates import PlanInputs, cluster_of
from skulkd.placement.memory import need_of
from skulkd.placement.orders import PlaceOrder, decide_place
from skulkd.placement.promises import (
    CREDIT_S,
    TeardownCredits,
    free_ram,
    free_vram,
    promised_bytes,
)
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.instances import Instance
from skulkd.wire.machine import AcceleratorMetrics, MemoryUsage, SystemPerformanceProfile
from skulkd.wire.runners import RunnerLoading, RunnerReady, RunnerStatus
from skulkd.wire.state import State
from skulkd.wire.topology import Topology
from tests.placement.builders import GIB, a_card, memory_of

A = NodeId("a")
NEED = need_of(a_card(4)).total_bytes
NO_NEWS = PlanInputs()


def a_state(free_gib: float = 16) -> State:
    return State(topology=Topology(nodes=[A]), node_memory={A: memory_of(16, free_gib)})


def with_instance(state: State, name: str, status: RunnerStatus | None = None) -> State:
    order = PlaceOrder(instance_id=InstanceId(name), card=a_card(4))
    inputs = PlanInputs(credits={A: 16 * GIB})
    instance: Instance = decide_place(order, state, inputs).instance
    runners = dict(state.runners)
    if status is not None:
        [runner_id] = instance.shard_assignments.runner_to_shard
        runners[RunnerId(runner_id)] = status
    changes = {"instances": {**state.instances, InstanceId(name): instance}, "runners": runners}
    return state.model_copy(update=changes)


def without(state: State, name: str) -> State:
    kept = {key: value for key, value in state.instances.items() if key != name}
    return state.model_copy(update={"instances": kept})


def test_what_is_not_loaded_yet_is_promised_and_what_is_loaded_is_read() -> None:
    assert promised_bytes(with_instance(a_state(), "one")) == {A: NEED}
    half = with_instance(a_state(), "one", RunnerLoading(layers_loaded=16, total_layers=32))
    assert promised_bytes(half) == {A: NEED // 2}
    assert promised_bytes(with_instance(a_state(), "one", RunnerReady())) == {A: 0}


def test_the_same_order_twice_makes_one_instance() -> None:
    state = with_instance(a_state(), "one")
    order = PlaceOrder(instance_id=InstanceId("one"), card=a_card(4))
    again = decide_place(order, state, NO_NEWS)
    assert (again.events, again.instance) == ((), state.instances[InstanceId("one")])


def test_the_same_instance_on_another_node_has_other_runners() -> None:
    def placed(node: NodeId) -> set[RunnerId]:
        state = State(topology=Topology(nodes=[node]), node_memory={node: memory_of(16, 16)})
        order = PlaceOrder(instance_id=InstanceId("one"), card=a_card(4))
        return set(decide_place(order, state, NO_NEWS).instance.shard_assignments.runner_to_shard)

    # Both parts of a split cluster may place it; the end of one runner is not that of the other.
    assert placed(A) == placed(A)
    assert not placed(A) & placed(NodeId("b"))


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def credits_for(free_gib: float) -> tuple[TeardownCredits, Clock, dict[NodeId, MemoryUsage]]:
    clock, memory = Clock(), {A: memory_of(16, free_gib)}
    return TeardownCredits(clock, lambda: free_ram(State(node_memory=memory))), clock, memory


def test_a_loaded_instance_gives_its_memory_back_for_half_a_minute() -> None:
    credits, clock, _ = credits_for(5)
    there = with_instance(a_state(), "one", RunnerReady())
    credits.watch(there)
    gone = without(there, "one")
    credits.watch(gone)
    assert credits.available(gone) == {A: 5 * GIB + NEED}
    clock.now = CREDIT_S - 0.001
    assert credits.available(gone) == {A: 5 * GIB + NEED}
    clock.now = CREDIT_S
    assert credits.available(gone) == {}


def test_an_instance_that_never_loaded_gives_nothing_back() -> None:
    credits, _, _ = credits_for(5)
    there = with_instance(a_state(), "one")
    credits.watch(there)
    credits.watch(without(there, "one"))
    assert credits.available(a_state()) == {A: 5 * GIB}


def test_a_credit_is_spent_once() -> None:
    credits, _, _ = credits_for(5)
    there = with_instance(a_state(), "one", RunnerReady())
    credits.watch(there)
    gone = without(there, "one")
    credits.watch(gone)
    spent = with_instance(gone, "two", RunnerReady())
    assert credits.available(spent) == {A: 5 * GIB}, "even when the new one has loaded"


def test_memory_that_is_back_is_not_counted_twice() -> None:
    there = with_instance(a_state(), "one", RunnerReady())
    credits, _, memory = credits_for(5)
    credits.watch(there)
    gone = without(there, "one")
    credits.watch(gone)
    memory[A] = memory_of(16, 5 + NEED / GIB)
    inputs = PlanInputs(credits=credits.available(gone))
    cluster = cluster_of(gone.model_copy(update={"node_memory": memory}), a_card().model_id, inputs)
    budget = cluster.nodes[0].budget
    assert budget is not None
    assert budget.usable_bytes == int(5 * GIB + NEED)


def test_the_memory_of_a_gpu_comes_back_as_well() -> None:
    card = AcceleratorMetrics(
        vendor="nvidia", vram_total_bytes=24 * GIB, vram_used_bytes=NEED + 12 * GIB
    )
    system = {A: SystemPerformanceProfile(accelerator=card)}
    there = with_instance(a_state(), "one", RunnerReady())
    credits = TeardownCredits(Clock(), lambda: free_vram(State(node_system=system)))
    credits.watch(there)
    gone = without(there, "one").model_copy(update={"node_system": system})
    credits.watch(gone)

    def usable(**credited: Mapping[NodeId, int]) -> int:
        inputs = PlanInputs(backends={A: frozenset({"mlx", "mlx-cuda"})}, **credited)
        budget = cluster_of(gone, a_card().model_id, inputs).nodes[0].budget
        assert budget is not None
        return budget.usable_bytes

    assert usable() == 12 * GIB - NEED
    assert usable(vram_credits=credits.available(gone)) == 12 * GIB
    assert usable(credits={A: 16 * GIB}) == 12 * GIB - NEED, "free RAM is of no use there"


def test_several_deletions_add_up() -> None:
    credits, _, _ = credits_for(1)
    there = with_instance(with_instance(a_state(), "one", RunnerReady()), "two", RunnerReady())
    credits.watch(there)
    first = without(there, "one")
    credits.watch(first)
    credits.watch(without(first, "two"))
    assert credits.available(a_state()) == {A: GIB + 2 * NEED}
