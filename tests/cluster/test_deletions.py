"""What was deleted stays deleted, whichever side of a split it was deleted on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skulkd.cluster.journal_replica import DELETIONS, JournalReplica
from skulkd.cluster.leader import LeaderPolicy
from skulkd.cluster.messages import Deletion, JournalEntry, Placement
from skulkd.placement.orders import DeleteOrder
from skulkd.placement.refusals import UnknownInstance
from skulkd.scheduling.placements import DELETE, REPAIR
from skulkd.wire.events import InstanceCreated, InstanceDeleted
from skulkd.wire.ids import EventId, InstanceId, NodeId
from tests.api.in_process import some_services
from tests.cluster.simulation import Simulation
from tests.daemon.builders import an_instance

A, B, C, D = (NodeId(name) for name in "abcd")


def split(policy: LeaderPolicy | None = None) -> tuple[Simulation, NodeId, NodeId]:
    """Four nodes, `i1` on a, then a and b without c and d; the masters of both sides."""
    sim = Simulation(policy=policy)
    for name in "abcd":
        sim.start(name)
    sim.run(4)
    sim.assert_one_cluster()
    sim.append("a", InstanceCreated(instance=an_instance("i1", (A,))))
    sim.run(1)
    sim.cut("ab")
    sim.run(8)
    left, right = sorted(sim.masters())
    return sim, left, right


def placed(sim: Simulation) -> set[str]:
    journal = next(iter(sim.nodes.values())).core.journal
    return {*journal.state.instances, *journal.unplaced}


@pytest.mark.parametrize("side", ["where it runs", "where it waits"])
def test_a_deletion_counts_for_both_sides_when_they_meet(side: str) -> None:
    sim, left, right = split()
    assert sim.delete(left if side == "where it runs" else right, "i1")
    sim.run(1)
    sim.heal()
    sim.run(8)
    sim.assert_one_cluster()
    assert not placed(sim)
    assert all(
        InstanceId("i1") in one.core.journal.deletions.values() for one in sim.nodes.values()
    )


def test_what_is_deleted_on_the_other_side_is_said_by_name() -> None:
    sim, _, right = split()
    sim.delete(right, "i1")
    sim.heal()
    sim.run(8)
    assert "instance i1 (org/llama) was " in sim.said()


def test_what_the_policy_deletes_on_a_loss_lives_on_where_it_runs() -> None:
    sim, left, right = split(LeaderPolicy(replan=lambda _: "no", on_node_loss="delete"))
    assert not sim.nodes[right].core.journal.has_instance(InstanceId("i1"))
    assert sim.nodes[left].core.journal.has_instance(InstanceId("i1"))
    sim.heal()
    sim.run(8)
    sim.assert_one_cluster()
    assert placed(sim) == {"i1"}


def test_an_instance_that_was_placed_again_after_its_deletion_stays() -> None:
    sim, left, _ = split()
    assert sim.delete(left, "i1")
    sim.append("b", InstanceCreated(instance=an_instance("i1", (B,))))
    sim.run(1)
    sim.heal()
    sim.run(8)
    sim.assert_one_cluster()
    # The other side let it wait for its lost node; the later word is the new placement.
    assert placed(sim) == {"i1"}


@pytest.mark.parametrize("side", ["the older reign", "the newer reign"])
def test_who_followed_a_master_that_died_before_two_sides_met_speaks_for_it(side: str) -> None:
    sim, left, right = split()
    older = min((left, right), key=lambda one: sim.nodes[one].core.journal.standing)
    newer = left if older == right else right
    died = older if side == "the older reign" else newer
    [survivor] = ({A, B} if died in (A, B) else {C, D}) - {died}
    assert sim.delete(died, "i1")
    sim.append(died, InstanceCreated(instance=an_instance("new", (survivor,))))
    sim.append(died, InstanceCreated(instance=an_instance("both", (survivor, died))))
    sim.run(1)
    sim.kill(died)
    sim.heal()
    sim.run(12)
    sim.assert_one_cluster()
    assert set(sim.nodes[survivor].core.journal.state.instances) == {"new"}
    # Its node is gone: it waits for another place, or is named.
    assert placed(sim) == {"new", "both"} or "instance both (org/llama) was not kept" in sim.said()


def body_of(name: str) -> bytes:
    return DeleteOrder(instance_id=InstanceId(name)).model_dump_json().encode()


def test_an_instance_that_waits_for_a_place_can_be_deleted(tmp_path: Path) -> None:
    journal = JournalReplica()
    journal.unplaced = {InstanceId("i1"): Placement(an_instance("i1"), {})}
    placements = some_services(tmp_path).placements
    decided = placements.decide(DELETE, body_of("i1"), journal)
    [event] = decided.events
    assert isinstance(event, InstanceDeleted)
    assert event.instance_id == "i1"
    for kind, name in ((DELETE, "other"), (REPAIR, "i1")):
        with pytest.raises(UnknownInstance):
            placements.decide(kind, body_of(name), journal)


def records(sim: Simulation, names: Iterable[str]) -> dict[str, object]:
    return {name: sim.nodes[NodeId(name)].core.journal.record() for name in names}


@pytest.mark.parametrize("order", ["abcd", "dcba", "cadb"])
@pytest.mark.parametrize("busy", ["left", "right"])
def test_everything_off_while_split_and_on_again(order: str, busy: str) -> None:
    sim, left, right = split()
    assert sim.delete(right, "i1")
    for _ in range(5):
        # The side that has seen more is the newer one; it may be the one that did not hear.
        sim.append(left if busy == "left" else right)
    sim.run(1)
    kept = records(sim, "abcd")
    again = Simulation()
    for name in order:
        again.start(f"new-{name}", name=name, record=kept[name])  # type: ignore[arg-type]
        again.run(2.5)
    again.run(30)
    again.assert_one_cluster()
    assert not placed(again)


def test_deletions_are_bounded() -> None:
    journal = JournalReplica()
    for number in range(DELETIONS + 10):
        event = InstanceDeleted(instance_id=InstanceId(f"i{number}"))
        journal.apply(JournalEntry(number, event, f"c{number}", "{}"))
    assert len(journal.deletions) == DELETIONS
    assert journal.deleted_since(InstanceId(f"i{DELETIONS + 9}"), ())
    assert not journal.deleted_since(InstanceId("i0"), ())
    heard = [Deletion(EventId(one), InstanceId("x")) for one in journal.deletions]
    assert not journal.deleted_since(InstanceId(f"i{DELETIONS + 9}"), heard)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["place", "delete", "delete", "delete", "cut", "cut", "link", "heal", "freeze", "thaw"]
        ),
        st.integers(0, 7),
    ),
    max_size=20,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), operations=OPERATIONS, loss=st.sampled_from([0.0, 0.1, 0.4]))
def test_whatever_happens_nothing_deleted_comes_back(
    seed: int, operations: list[tuple[str, int]], loss: float
) -> None:
    """Nobody is killed: a master that dies with the only copy of a word takes it along."""
    sim = Simulation(seed)
    sim.loss, sim.duplication, sim.max_delay_s = loss, 0.2, 0.5
    for name in "abcd":
        sim.start(name)
    sim.run(6)
    names = [f"i{node}" for node in sim.nodes]
    for node, name in zip(sim.nodes, names, strict=True):
        sim.append(node, InstanceCreated(instance=an_instance(name, (node,))))
    sim.run(2)
    deleted: set[str] = set()
    for kind, number in operations:
        node = sorted(sim.nodes)[number % 4]
        if kind == "place":
            names.append(f"i{len(names)}")
            sim.append(node, InstanceCreated(instance=an_instance(names[-1], (node,))))
        elif kind == "delete" and names:
            wanted = names[number % len(names)]
            if any(sim.delete(master, wanted) for master in sim.masters()[number % 2 :]):
                deleted.add(wanted)
        elif kind == "cut":
            sim.cut(sorted(sim.nodes)[: 1 + number % 3])
        elif kind == "link":
            sim.cut_link(node, sorted(sim.nodes)[(number + 1 + number // 4) % 4])
        elif kind == "heal":
            sim.heal()
        elif kind in ("freeze", "thaw"):
            getattr(sim, kind)(node)
        sim.run(sim.random.choice([0.1, 0.5, 2, 5, 12]))
    for node in sim.nodes:
        sim.thaw(node)
    sim.heal()
    sim.loss = sim.duplication = sim.max_delay_s = 0.0
    sim.run(30)
    sim.assert_one_cluster()
    assert not placed(sim) & deleted
