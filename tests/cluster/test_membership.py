"""A member that leaves without notice stays listed as lost until it is back or given up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from skulkd.cluster.disk import RecordFile, applied, difference
from skulkd.cluster.master_status import session_age_s
from skulkd.cluster.membership import LOST_LIMIT, Membership
from skulkd.cluster.messages import ClusterRecord
from skulkd.wire.events import NodeLossCleared, NodeLost
from skulkd.wire.ids import NodeId
from tests.cluster.simulation import Simulation

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


def formed(names: str = "abc") -> Simulation:
    sim = Simulation()
    for name in names:
        sim.start(name)
    sim.run(8)
    sim.assert_one_cluster()
    return sim


def follower(sim: Simulation) -> str:
    return next(node for node in sim.nodes if node not in sim.masters())


def lost(sim: Simulation) -> list[str]:
    """The names on which all nodes agree."""
    lists = [[one.name for one in node.core.missing_members()] for node in sim.nodes.values()]
    assert all(names == lists[0] for names in lists), lists
    return lists[0]


def records(sim: Simulation) -> dict[str, ClusterRecord]:
    return {node.core.connected.name: node.core.journal.record() for node in sim.nodes.values()}


def forget(sim: Simulation, name: str) -> None:
    [master] = sim.masters()
    leader = sim.nodes[master].core.leader
    assert leader is not None
    leader.append([NodeLossCleared(name=name, cause="forgotten")], f"forget-{name}", "{}")


@pytest.mark.parametrize("role", ["follower", "master"])
def test_a_killed_node_is_lost_until_a_node_of_its_name_is_here(role: str) -> None:
    sim = formed()
    gone = follower(sim) if role == "follower" else str(sim.masters()[0])
    sim.kill(gone)
    sim.run(1)
    assert lost(sim) == [gone], "also before a new master has settled"
    sim.run(6)
    sim.assert_one_cluster()
    assert lost(sim) == [gone]
    assert all(gone in node.core.journal.membership.lost for node in sim.nodes.values())
    sim.start(f"{gone}2", name=gone)
    sim.run(4)
    sim.assert_one_cluster()
    assert lost(sim) == []


@pytest.mark.parametrize("role", ["follower", "master"])
def test_a_node_that_stops_in_order_is_not_lost(role: str) -> None:
    sim = formed()
    sim.leave(follower(sim) if role == "follower" else str(sim.masters()[0]))
    for _ in range(10):
        sim.run(1)
        assert lost(sim) == []


def test_a_goodbye_that_is_heard_after_the_connection_closed_counts() -> None:
    sim = formed()
    gone = NodeId(follower(sim))
    sim.kill(gone)
    sim.run(2)
    assert lost(sim) == [gone]
    for node in sim.nodes.values():
        node.core.lost(sim.now, gone, stopped=True)
    sim.run(1)
    assert lost(sim) == []


@pytest.mark.parametrize("how", ["freeze", "hang"])
def test_a_node_that_stood_still_is_back_when_it_runs_again(how: str) -> None:
    sim = formed()
    gone = follower(sim)
    getattr(sim, how)(gone)
    sim.run(8)
    [master] = sim.masters()
    assert [one.name for one in sim.nodes[master].core.missing_members()] == [gone]
    sim.thaw(gone) if how == "freeze" else sim.wake(gone)
    sim.run(12)
    sim.assert_one_cluster()
    assert lost(sim) == []


def test_each_side_of_a_split_lists_the_other_and_nobody_is_lost_after_it() -> None:
    sim = formed("abcd")
    sim.cut("ab")
    sim.run(8)
    views = {
        name: [one.name for one in sim.nodes[NodeId(name)].core.missing_members()]
        for name in "abcd"
    }
    assert views == {"a": ["c", "d"], "b": ["c", "d"], "c": ["a", "b"], "d": ["a", "b"]}
    sim.heal()
    sim.run(12)
    sim.assert_one_cluster()
    assert lost(sim) == []
    assert all(not node.core.journal.membership.lost for node in sim.nodes.values())


def test_clusters_that_meet_know_both_lists() -> None:
    sim = Simulation()
    for name in "abcd":
        sim.start(name)
    sim.cut("ab")
    sim.run(8)
    sim.kill("b")
    sim.kill("d")
    sim.run(6)
    sim.heal()
    sim.run(12)
    sim.assert_one_cluster()
    assert lost(sim) == ["b", "d"]


def test_who_lost_only_its_own_link_to_a_node_does_not_miss_it_later() -> None:
    sim = formed("abcd")
    [master] = sim.masters()
    cut_off, other, _ = [node for node in sim.nodes if node != master]
    sim.cut_link(cut_off, other)
    sim.run(1)
    assert [one.name for one in sim.nodes[cut_off].core.missing_members()] == [other]
    sim.leave(other)
    sim.run(6)
    assert lost(sim) == []
    sim.kill(master)
    sim.run(8)
    assert lost(sim) == [master]


def test_of_a_cluster_that_was_killed_those_are_lost_that_do_not_come_back() -> None:
    disks = records(formed())
    sim = Simulation()
    sim.start("node1", name="a", record=disks["a"])
    sim.start("node2", name="b", record=disks["b"])
    sim.run(sim.policy.restore_s - 3)
    assert lost(sim) == [], "it may still be starting"
    sim.run(6)
    assert lost(sim) == ["c"]
    sim.start("node3", name="c", record=disks["c"])
    sim.run(4)
    sim.assert_one_cluster()
    assert lost(sim) == []


def test_a_loss_outlives_restarts_of_all_others_and_a_new_master() -> None:
    sim = formed()
    sim.kill("c")
    sim.run(3)
    [since] = {node.core.missing_members()[0].since for node in sim.nodes.values()}
    disks = records(sim)
    for order in ("ab", "ba"):
        again = Simulation()
        for number, name in enumerate(order):
            again.start(f"node{number}", name=name, record=disks[name])
            again.run(3)
        assert lost(again) == ["c"]
        again.kill(again.masters()[0])
        again.run(6)
        [left] = again.nodes.values()
        shown = {one.name: one.since for one in left.core.missing_members()}
        assert shown["c"] == since
        assert len(shown) == 2, "and the master that was killed"


def test_what_was_forgotten_does_not_come_back_with_an_older_disk() -> None:
    sim = formed()
    sim.kill("c")
    sim.run(3)
    older = records(sim)["a"]
    forget(sim, "c")
    sim.run(1)
    assert lost(sim) == []
    newer = records(sim)["b"]
    again = Simulation()
    again.start("node1", name="a", record=older)
    again.run(3)
    assert lost(again) == ["c"]
    again.start("node2", name="b", record=newer)
    again.run(4)
    again.assert_one_cluster()
    assert lost(again) == []
    again.run(again.policy.restore_s)
    assert lost(again) == []


@pytest.mark.parametrize("cold_start", [False, True])
def test_a_node_that_comes_back_does_not_bring_losses_that_were_forgotten(cold_start: bool) -> None:
    sim = formed("abcd")
    if cold_start:
        disks, sim = records(sim), Simulation()
        for name in "abcd":
            sim.start(f"node-{name}", name=name, record=disks[name])
        sim.run(8)
    gone, late = [node for node in sim.nodes if node not in sim.masters()][:2]
    gone_name, late_name = (sim.nodes[node].core.connected.name for node in (gone, late))
    sim.kill(gone)
    sim.run(3)
    disk = records(sim)[late_name]
    assert [one.name for one in disk.lost] == [gone_name]
    sim.leave(late)
    sim.run(2)
    forget(sim, gone_name)
    sim.run(1)
    sim.start("again", name=late_name, record=disk)
    sim.run(25)
    sim.assert_one_cluster()
    assert lost(sim) == []


def test_a_node_that_stopped_in_order_accuses_nobody_after_its_next_start() -> None:
    sim = formed()
    leaving = sim.nodes[NodeId("a")].core
    leaving.membership.leave()
    for other in ("b", "c"):
        leaving.lost(sim.now, NodeId(other))
    for _ in range(50):
        sim.now += 0.1
        leaving.tick(sim.now)
    disk = records(sim)["a"]
    assert (disk.members, disk.lost) == ((), ())
    again = Simulation()
    again.start("node1", name="a", record=disk, alone=True)
    again.run(30)
    assert lost(again) == []


def test_a_node_with_another_name_does_not_miss_itself() -> None:
    sim = formed("a")
    again = Simulation()
    again.start("node1", name="renamed", record=records(sim)["a"], alone=True)
    again.run(30)
    assert lost(again) == []


def test_a_node_that_got_another_name_is_not_missed_by_the_old_one() -> None:
    sim = formed("ab")
    sim.start("c", name="a")
    sim.run(10)
    sim.assert_one_cluster()
    assert lost(sim) == []
    sim.kill("c")
    sim.run(2)
    assert lost(sim) == ["a-2"]


def test_the_age_of_a_session_is_how_long_its_master_has_led() -> None:
    sim = formed()
    sim.run(60)
    sim.kill(sim.masters()[0])
    sim.run(5)
    sim.assert_one_cluster()
    ages = [session_age_s(node.core) for node in sim.nodes.values()]
    assert all(age is not None and 0 < age <= 5 for age in ages), ages
    sim.start("late", name="late")
    sim.run(3)
    late = session_age_s(sim.nodes[NodeId("late")].core)
    assert late is not None
    assert late > 4, "a follower says the master's age, not since when it follows"


def test_the_list_is_bounded_and_drops_the_oldest() -> None:
    members = Membership()
    for number in range(LOST_LIMIT + 3):
        members.apply(NodeLost(name=f"n{number:04}", since=NOON + timedelta(seconds=number)))
    assert len(members.lost) == LOST_LIMIT
    assert "n0002" not in members.lost
    assert "n0003" in members.lost


def test_members_and_losses_are_on_disk(tmp_path) -> None:  # type: ignore[no-untyped-def]
    sim = formed()
    sim.kill("c")
    sim.run(3)
    record = records(sim)["a"]
    assert record.members == ("b",)
    assert [one.name for one in record.lost] == ["c"]
    before = ClusterRecord(record.lineage, 0, 0)
    assert applied(before, difference(before, record)) == record
    file = RecordFile(tmp_path / "placements.json")
    file.save(before)
    file.save(record)
    assert RecordFile(tmp_path / "placements.json").load() == record
