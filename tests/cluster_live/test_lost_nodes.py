"""A daemon that dies without notice stays listed until it is back, or until it is forgotten."""

from __future__ import annotations

import time

from tests.cluster_live.cluster import StartCluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

DEADLINE_S = 90.0


def lost(node: LiveNode) -> list[str]:
    return [one["name"] for one in node.get("/v1/cluster")["lost"]]


def exit_codes(node: LiveNode) -> tuple[int, int]:
    return tuple(  # type: ignore[return-value]
        node.skulkctl(*words).code for words in (("doctor", "-q"), ("status", "--check"))
    )


def test_a_killed_node_fails_the_checks_until_it_is_forgotten(cluster: StartCluster) -> None:
    three = cluster(3)
    master = three.master()
    victim, other = [node for node in three.nodes if node is not master]
    assert other.skulkctl("doctor", "-q").out == ""
    assert exit_codes(other) == (0, 0)

    victim.kill()
    for node in (master, other):
        wait_until(lambda n=node: lost(n) == [victim.name], "the loss", DEADLINE_S)
    assert other.skulkctl("doctor", "-q").out == "lost\n"
    assert exit_codes(other) == (7, 7)
    listed = master.skulkctl("nodes", "--columns", "name,health")
    assert (listed.code, f"{victim.name}  lost" in listed.out) == (8, True)
    assert "lost" not in master.state()
    assert all("NodeLost" not in event for event in master.get("/events"))

    # A restart in order is no loss, and the list outlives it.
    assert other.stop() == 0
    assert lost(master) == [victim.name]
    three.start(other)
    three.wait_formed()
    wait_until(lambda: lost(other) == [victim.name], "the list on the new start", DEADLINE_S)

    # All that are left are killed: their disks know it, too.
    for node in (master, other):
        node.kill()
    three.start(master, other)
    three.wait_formed()
    for node in (master, other):
        wait_until(lambda n=node: lost(n) == [victim.name], "the list after that", DEADLINE_S)

    assert other.skulkctl("nodes", "forget", other.name, "--yes").code == 4
    assert other.skulkctl("nodes", "forget", "nobody", "--yes").code == 3
    assert other.skulkctl("nodes", "forget", victim.name, "--dry-run").code == 0
    assert lost(other) == [victim.name]
    assert other.skulkctl("nodes", "forget", victim.name, "--yes").out == (
        f"forgot {victim.name}\n"
    )
    assert exit_codes(other) == (0, 0)
    events = other.skulkctl("events", "--kind", "NodeLossCleared").out
    assert f"name={victim.name} cause=forgotten" in events

    three.start(victim)
    three.wait_formed()
    assert lost(master) == []
    master = three.master()
    killed_at = time.monotonic()
    master.kill()
    left = [node for node in three.nodes if node is not master]
    three.wait_formed(left)
    for node in left:
        wait_until(lambda n=node: lost(n) == [master.name], "the master's loss", DEADLINE_S)
        age_s = node.get("/v1/cluster")["session"]["ageSeconds"]
        assert age_s <= time.monotonic() - killed_at, "the new master cannot have led before"
