"""Nodes that agree: one master per component and equal states, whatever the network does."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skulkd.cluster.leader import LeaderPolicy
from skulkd.cluster.merge import with_nodes
from skulkd.cluster.messages import Entries, JournalEntry, JournalSnapshot, Submit, UnplacedList
from skulkd.cluster.timing import Timing
from skulkd.wire.events import (
    InstanceCreated,
    InstanceDeleted,
    RunnerStatusUpdated,
    TaskCreated,
    TestEvent,
    TracingStateChanged,
)
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.instances import Instance
from skulkd.wire.runners import RunnerReady
from skulkd.wire.state import State
from tests.cluster.simulation import Simulation
from tests.daemon.builders import a_task, an_instance

A, B, C, D = (NodeId(name) for name in "abcd")


def three(seed: int = 0, policy: LeaderPolicy | None = None) -> Simulation:
    sim = Simulation(seed, policy)
    for name in "abc":
        sim.start(name)
    sim.run(4)
    sim.assert_one_cluster()
    return sim


def created(name: str, *nodes: NodeId) -> InstanceCreated:
    return InstanceCreated(instance=an_instance(name, nodes))


def test_a_node_alone_leads_at_once() -> None:
    sim = Simulation()
    node = sim.start("a", alone=True)
    assert node.core.role == "leading"
    sim.append("a")
    assert node.core.journal.head == 0


def test_nodes_that_start_together_agree_within_three_seconds() -> None:
    sim = Simulation()
    for name in "abcde":
        sim.start(name)
    sim.run(3)
    sim.assert_one_cluster()


def test_a_newcomer_does_not_depose() -> None:
    sim = three()
    before = sim.masters()
    for name in ("z", "y"):
        sim.start(name)
        sim.run(3)
        sim.assert_one_cluster()
        assert sim.masters() == before


def test_events_of_any_node_reach_all_in_one_order() -> None:
    sim = three()
    for number in range(60):
        sim.append("abc"[number % 3])
        if number % 7 == 0:
            sim.step()
    sim.run(2)
    sim.assert_one_cluster()
    assert sim.nodes[A].core.journal.head == 59


@pytest.mark.parametrize("how", ["kill", "leave"])
def test_a_master_that_is_gone_has_a_successor_within_three_seconds(how: str) -> None:
    sim = three()
    sim.append("a", created("i1", A))
    sim.run(1)
    old = sim.masters()[0]
    survivor = next(node for node in sim.nodes if node != old)
    sim.append(survivor, TracingStateChanged(enabled=True))
    getattr(sim, how)(old)
    sim.run(3)
    sim.assert_one_cluster()
    assert sim.nodes[survivor].core.journal.state.tracing_enabled
    assert not any(node.replaced for node in sim.nodes.values())


def test_what_did_not_touch_the_dead_master_is_untouched() -> None:
    sim = three()
    old = sim.masters()[0]
    others = [node for node in sim.nodes if node != old]
    sim.append("a", created("mine", others[0], others[1]))
    sim.append("a", created("lost", old))
    sim.run(1)
    status = RunnerStatusUpdated(runner_id=RunnerId("mine-r0"), runner_status=RunnerReady())
    sim.append(others[0], status)
    sim.append(others[0], TaskCreated(task_id=(task := a_task("t", "lost")).task_id, task=task))
    sim.run(1)
    sim.kill(old)
    sim.run(6)
    sim.assert_one_cluster()
    journal = sim.nodes[others[0]].core.journal
    assert list(journal.state.instances) == ["mine"]
    assert journal.state.runners == {RunnerId("mine-r0"): RunnerReady()}
    assert list(journal.unplaced) == ["lost"]
    assert not journal.state.tasks


def test_a_master_that_hangs_is_deposed_and_follows_when_it_wakes() -> None:
    sim = three()
    old = sim.masters()[0]
    node = sim.nodes[old]
    sim.hang(old)
    sim.run(7)
    assert sum(one.core.role == "leading" for one in sim.nodes.values() if one is not node) == 1
    sim.wake(old)
    sim.run(5)
    sim.assert_one_cluster()
    assert sim.masters() != [old]


def test_a_frozen_master_finds_itself_deposed() -> None:
    sim = three()
    old = sim.masters()[0]
    sim.append("a", created("i1", old))
    sim.run(1)
    sim.freeze(old)
    sim.run(10)
    survivor = next(node for node in sim.nodes if node != old)
    sim.append(survivor)
    sim.thaw(old)
    sim.run(6)
    sim.assert_one_cluster()
    assert sim.masters() != [old]


def test_two_clusters_that_meet_become_one_and_keep_their_placements() -> None:
    sim = three()
    sim.append("a", created("old", A))
    sim.cut("ab")
    for name in "xy":
        sim.start(name)
        sim.cut("xy")
    sim.run(5)
    assert len(sim.masters()) == 3
    sim.append("x", created("new", NodeId("x"), NodeId("y")))
    ready = RunnerStatusUpdated(runner_id=RunnerId("new-r0"), runner_status=RunnerReady())
    sim.append("x", ready)
    sim.append("x", created("ghost", NodeId("gone")))
    sim.run(1)
    sim.heal()
    sim.run(5)
    sim.assert_one_cluster()
    state = sim.nodes[A].core.journal.state
    assert set(state.instances) == {"old", "new"}
    assert state.runners[RunnerId("new-r0")] == RunnerReady()


def test_a_placement_is_kept_when_its_node_joins_a_moment_after_its_master() -> None:
    sim = three()
    [stays] = sim.masters()
    for name in "xy":
        sim.start(name)
    sim.cut("xy")
    sim.run(5)
    [cedes] = [node for node in sim.masters() if node in ("x", "y")]
    [holder] = {NodeId("x"), NodeId("y")} - {cedes}
    sim.append(cedes, created("late", holder))
    sim.append(cedes, created("never", holder, NodeId("gone")))
    sim.run(1)
    sim.heal()
    for name in "abc":
        sim.cut_link(name, holder)
    while cedes in sim.masters():
        sim.step()
    assert set(sim.nodes[stays].core.journal.state.instances) == {"late"}
    sim.heal()
    sim.run(10)
    sim.assert_one_cluster()
    # Never gone in between, or its runner would have been stopped.
    assert set(sim.nodes[holder].core.journal.state.instances) == {"late"}
    assert "late (org/llama) lost" not in sim.said()


def test_a_link_that_is_missing_does_not_make_two_clusters() -> None:
    sim = three()
    sim.start("d")
    sim.run(3)
    old = sim.masters()[0]
    sim.append("a", created("i1", old))
    sim.run(1)
    cut_off = next(node for node in sim.nodes if node != old)
    sim.cut_link(old, cut_off)
    sim.run(12)
    assert len(sim.masters()) == 1
    assert len({node.core.session for node in sim.nodes.values()}) == 1
    assert sim.masters()[0] not in (old, cut_off)
    assert list(sim.nodes[cut_off].core.journal.state.instances) == ["i1"]
    before = sim.masters()
    sim.heal()
    sim.run(5)
    sim.assert_one_cluster()
    assert sim.masters() == before


def test_who_was_cut_off_alone_does_not_bring_its_own_reign_home() -> None:
    """The rest never lost its master; what it placed meanwhile is what stays."""
    sim = three()
    sim.start("d")
    sim.run(10)
    before = sim.masters()
    alone = next(node for node in sim.nodes if node not in before)
    holder = next(node for node in sim.nodes if node not in (*before, alone))
    sim.append(before[0], created("i1", holder))
    sim.run(1)
    sim.cut([alone])
    sim.run(12)
    assert sorted(sim.masters()) == sorted([*before, alone])
    sim.heal()
    sim.run(5)
    sim.assert_one_cluster()
    assert sim.masters() == before
    assert sim.nodes[alone].core.journal.state.instances["i1"] == an_instance("i1", (holder,))
    assert sim.nodes[holder].replaced == 0


def test_a_new_master_does_not_take_those_for_silent_who_did_not_tell_it() -> None:
    """Followers tell only their master that they live, for as long as it leads them."""
    sim = three()
    old = sim.masters()[0]
    cut_off, third = (node for node in sim.nodes if node != old)
    sim.append(old, created("i1", third))
    sim.run(Timing().silent_s + 5)
    sim.cut_link(old, cut_off)
    sim.run(2)
    assert cut_off in sim.masters()
    assert sim.nodes[cut_off].lost == [old]
    assert list(sim.nodes[cut_off].core.journal.state.instances) == ["i1"]


def test_what_cannot_be_kept_is_named() -> None:
    sim = three()
    sim.cut("c")
    sim.run(5)
    sim.append("c", created("both", C))
    sim.append("a", created("both", A))
    sim.run(1)
    sim.heal()
    sim.run(5)
    sim.assert_one_cluster()
    assert "instance both (org/llama) was not kept: it was placed on other nodes" in sim.said()


def test_a_follower_far_behind_takes_a_snapshot() -> None:
    sim = three()
    follower = next(node for node in sim.nodes if [node] != sim.masters())
    sim.freeze(follower)
    sim.run(1)
    for number in range(5000):
        sim.append(sim.masters()[0])
        if number % 1000 == 0:
            sim.step()
    sim.thaw(follower)
    sim.run(10)
    sim.assert_one_cluster()
    assert sim.nodes[follower].replaced


def test_names_are_unique_and_the_newcomer_gives_way() -> None:
    sim = Simulation()
    sim.start("a", name="kite")
    sim.run(3)
    sim.start("b", name="kite")
    sim.run(3)
    sim.start("c", name="kite")
    sim.run(3)
    sim.assert_one_cluster()
    assert [node.core.connected.name for node in sim.nodes.values()] == ["kite", "kite-2", "kite-3"]


def test_an_instance_that_lost_a_node_is_placed_again_under_its_id() -> None:
    def elsewhere(instance: Instance) -> Instance | str:
        (old,) = instance.shard_assignments.node_to_runner
        return with_nodes(instance, {old: A})

    sim = three(policy=LeaderPolicy(replan=elsewhere))
    victim = next(node for node in (C, B) if [node] != sim.masters())
    sim.append("a", created("i1", victim))
    sim.run(1)
    sim.kill(victim)
    sim.run(4)
    sim.assert_one_cluster()
    assert list(
        sim.nodes[A].core.journal.state.instances["i1"].shard_assignments.node_to_runner
    ) == [A]


def test_the_policy_delete_deletes() -> None:
    sim = three(policy=LeaderPolicy(replan=lambda _: "no", on_node_loss="delete"))
    victim = next(node for node in (C, B) if [node] != sim.masters())
    sim.append("a", created("i1", victim))
    sim.run(1)
    sim.kill(victim)
    sim.run(4)
    sim.assert_one_cluster()
    journal = sim.nodes[A].core.journal
    assert not journal.state.instances
    assert not journal.unplaced


def test_everything_off_and_on_restores_placements_on_nodes_with_the_old_names() -> None:
    sim = three()
    sim.append("a", created("i1", A, B))
    sim.append("a", created("i2", C))
    sim.append("a", TracingStateChanged(enabled=True))
    sim.append("b", created("i3", B))
    sim.run(1)
    stale = sim.nodes[C].core.journal.record()
    sim.append("b", InstanceDeleted(instance_id=InstanceId("i3")))
    sim.run(1)
    records = {name: sim.nodes[NodeId(name)].core.journal.record() for name in "ab"} | {"c": stale}
    again = Simulation()
    again.start("node3", name="c", record=records["c"])
    again.run(1.5)
    again.start("node1", name="a", record=records["a"])
    again.run(3)
    again.start("node2", name="b", record=records["b"])
    again.run(5)
    again.assert_one_cluster()
    state = again.nodes[NodeId("node1")].core.journal.state
    placed = {
        key: list(instance.shard_assignments.node_to_runner)
        for key, instance in state.instances.items()
    }
    assert placed == {"i1": ["node1", "node2"], "i2": ["node3"]}
    assert state.tracing_enabled


def test_a_cluster_that_lived_on_does_not_take_back_old_placements() -> None:
    sim = three()
    sim.append("a", created("i1", C))
    sim.run(1)
    record = sim.nodes[C].core.journal.record()
    sim.append("a", InstanceDeleted(instance_id=InstanceId("i1")))
    sim.run(1)
    sim.kill("c")
    sim.run(4)
    sim.start("c2", name="c", record=record)
    sim.run(30)
    sim.assert_one_cluster()
    assert not sim.nodes[A].core.journal.state.instances


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "append",
                "append",
                "place",
                "cut",
                "link",
                "heal",
                "freeze",
                "thaw",
                "kill",
                "start",
                "wait",
            ]
        ),
        st.integers(0, 7),
    ),
    max_size=16,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), operations=OPERATIONS, loss=st.sampled_from([0.0, 0.1, 0.4]))
def test_whatever_happens_there_is_one_master_and_one_state(
    seed: int, operations: list[tuple[str, int]], loss: float
) -> None:
    sim = Simulation(seed)
    sim.loss, sim.duplication, sim.max_delay_s = loss, 0.2, 0.5
    for name in "abcd":
        sim.start(name)
    for kind, number in operations:
        _operate(sim, kind, number)
        sim.run(sim.random.choice([0.1, 0.5, 2, 5]))
    for node in sim.nodes:
        sim.thaw(node)
    sim.heal()
    sim.loss = sim.duplication = sim.max_delay_s = 0.0
    sim.run(25)
    sim.assert_one_cluster()


def _operate(sim: Simulation, kind: str, number: int) -> None:
    node = sorted(sim.nodes)[number % len(sim.nodes)]
    if kind == "append":
        for _ in range(number + 1):
            sim.append(node, TestEvent())
    elif kind == "place":
        sim.append(node, created(f"i{number}", node))
    elif kind == "cut":
        sim.cut(sorted(sim.nodes)[: 1 + number % len(sim.nodes)])
    elif kind == "link":
        sim.cut_link(node, sorted(sim.nodes)[(number + 1 + number // 4) % len(sim.nodes)])
    elif kind == "heal":
        sim.heal()
    elif kind in ("freeze", "thaw"):
        getattr(sim, kind)(node)
    elif kind == "kill" and len(sim.nodes) > 1:
        sim.kill(node)
    elif kind == "start" and len(sim.nodes) < 6:
        sim.start(f"n{sim.random.getrandbits(32):08x}")


def test_nothing_that_was_said_in_another_session_counts() -> None:
    sim = three()
    old = sim.masters()[0]
    stale = sim.nodes[old].core.journal
    sim.kill(old)
    sim.run(4)
    assert stale.session is not None
    late = JournalEntry(sim.nodes[next(iter(sim.nodes))].core.journal.head + 1, created("late", A))
    for node in sim.nodes.values():
        before = node.core.journal.state
        sender = next(other for other in sim.nodes if other != node.node_id)
        for message in (
            Entries(stale.session, (late,), late.index),
            Submit(stale.session, (late.event,)),
            JournalSnapshot(stale.session, State(), "other"),
            UnplacedList(stale.session, 99, (stale.placement(an_instance("x")),)),
        ):
            node.core.receive(sim.now, sender, message)
        assert node.core.journal.state is before
        assert not node.core.journal.unplaced
