"""How soon a loss is known, by a clock that is told: no machine is too slow for this.

The fabric's part is its lease: `freeze` in the simulation ends links when it has run out.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skulkd.cluster.timing import Timing
from skulkd.wire.events import InstanceCreated
from skulkd.wire.ids import InstanceId, NodeId
from tests.cluster.simulation import STEP_S, Simulation
from tests.daemon.builders import an_instance


def formed(count: int = 4) -> Simulation:
    """Every node has an instance of its own."""
    sim = Simulation()
    for name in "abcdefgh"[:count]:
        sim.start(name)
    sim.run(4)
    sim.assert_one_cluster()
    for node in sim.nodes:
        sim.append(node, InstanceCreated(instance=an_instance(f"i-{node}", (node,))))
    # The moments between two beats must not matter.
    sim.run(1.3)
    return sim


def follower(sim: Simulation) -> NodeId:
    return next(node for node in sim.nodes if [node] != sim.masters())


def until(sim: Simulation, happened: Callable[[], bool], limit_s: float) -> float:
    began = sim.now
    while not happened():
        sim.step()
        assert sim.now - began <= limit_s + STEP_S, "too late"
    return sim.now - began


def gone(sim: Simulation, lost: NodeId) -> Callable[[], bool]:
    """Whether every other node knows that what stood there does so no longer."""
    name = InstanceId(f"i-{lost}")
    others = [node for key, node in sim.nodes.items() if key != lost]
    return lambda: all(name not in node.core.journal.state.instances for node in others)


def test_a_killed_node_is_lost_within_two_seconds() -> None:
    sim = formed()
    lost = follower(sim)
    sim.kill(lost)
    until(sim, gone(sim, lost), 2.0)


@pytest.mark.parametrize("how", ["freeze", "hang"])
@pytest.mark.parametrize("offset", [0.0, 0.1, 0.2, 0.3, 0.4])
def test_a_node_that_stands_still_is_lost_within_four_seconds(how: str, offset: float) -> None:
    sim = formed()
    sim.run(offset)
    lost = follower(sim)
    getattr(sim, how)(lost)
    until(sim, gone(sim, lost), 4.0)


@pytest.mark.parametrize("how", ["kill", "freeze", "hang"])
def test_a_master_that_is_lost_has_a_successor_in_time(how: str) -> None:
    sim = formed()
    [old] = sim.masters()
    getattr(sim, how)(old)

    def succeeded() -> bool:
        others = [node for key, node in sim.nodes.items() if key != old]
        sessions = {node.core.session for node in others}
        return (
            all(node.core.synced for node in others)
            and len(sessions) == 1
            and (others[0].core.session is not None and others[0].core.session.master != old)
        )

    until(sim, succeeded, 2.0 if how == "kill" else 4.5)


def test_a_node_whose_loop_hung_is_back_with_what_stood_there() -> None:
    sim = formed()
    lost = follower(sim)
    sim.hang(lost)
    until(sim, gone(sim, lost), 4.0)
    sim.wake(lost)
    sim.run(3)
    sim.assert_one_cluster()
    assert f"{lost} is back" in sim.said()
    assert f"i-{lost}" in sim.nodes[lost].core.journal.state.instances


def test_a_loop_that_hangs_for_a_moment_costs_nothing() -> None:
    sim = formed()
    for _ in range(5):
        for node in sim.nodes:
            sim.hang(node)
            sim.run(1.5)
            sim.wake(node)
            sim.run(0.5)
    sim.assert_one_cluster()
    assert not any(node.lost for node in sim.nodes.values())
    assert len(next(iter(sim.nodes.values())).core.journal.state.instances) == 4


def test_times_do_not_depend_on_what_the_clock_says() -> None:
    """Only differences of one node's own clock count; another one's may say anything."""
    sim = formed()
    lost = follower(sim)
    clocks = {node: number * 1000.0 for number, node in enumerate(sim.nodes)}
    for key, node in sim.nodes.items():
        core, shift = node.core, clocks[key]
        for name in ("tick", "flush", "receive", "joined", "lost", "append"):
            method = getattr(core, name)
            setattr(core, name, lambda now, *a, _m=method, _s=shift: _m(now + _s, *a))
    sim.run(6)
    sim.assert_one_cluster()
    sim.hang(lost)
    until(sim, gone(sim, lost), 4.0)


def test_large_clusters_take_their_time() -> None:
    small, large = Timing().scaled(16), Timing().scaled(32)
    assert small == Timing()
    assert large.silent_s == 2 * small.silent_s
    assert large.heartbeat_s == 2 * small.heartbeat_s


@pytest.mark.parametrize("seed", range(12))
def test_a_master_that_hung_follows_the_one_who_took_its_place(seed: int) -> None:
    """It finds the words of its followers in its sockets; they are as old as its sleep."""
    sim = Simulation(seed)
    for name in "abc":
        sim.start(name)
    sim.run(4 + sim.random.random())
    [old] = sim.masters()
    sim.max_delay_s = 0.3 * (seed % 2)
    sim.hang(old)
    others = [node.core for key, node in sim.nodes.items() if key != old]

    def masters() -> set[NodeId | None]:
        return {core.session.master if core.session else None for core in others}

    while len(masters()) != 1 or masters() & {old, None}:
        sim.step()
    [chosen] = masters()
    sim.run(STEP_S * sim.random.randrange(3))
    sim.wake(old)
    sim.run(8)
    sim.assert_one_cluster()
    assert sim.masters() == [chosen]
