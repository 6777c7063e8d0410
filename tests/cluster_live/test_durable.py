"""Nothing that was acknowledged is lost when every node is killed moments after the answer.

`make soak` runs 200 rounds; SKULK_SOAK_SEED repeats a run.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from skulkd.cluster.disk import RecordFile
from skulkd.cluster.messages import ClusterRecord
from skulkd.settings.load import check_config_text
from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.cluster import LiveCluster, StartCluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

SEED = int(os.environ.get("SKULK_SOAK_SEED", str(time.time_ns())))
LATEST_KILL_S = 0.3
MOST_PLACEMENTS = 2

log = logging.getLogger(__name__)


@dataclass
class Acknowledged:
    """What the daemons have said yes to."""

    instances: set[str] = field(default_factory=set)
    tracing: bool = False
    draining: set[str] = field(default_factory=set)
    retention_days: dict[str, int] = field(default_factory=dict)


class Rounds:
    """Changes on a random node, kill all, look at the disks, start all, look at the state."""

    def __init__(self, cluster: LiveCluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.yes = Acknowledged()
        self.orders: dict[str, Callable[[LiveNode], None]] = {
            "place": self._place,
            "delete": self._delete,
            "tracing": self._trace,
            "drain": self._drain,
            "config": self._configure,
        }

    def play(self, orders: Sequence[str], kill_after_s: float) -> None:
        node = self.chance.choice(self.cluster.nodes)
        log.info("%s on %s, kill after %.3f s", ", ".join(orders), node.name, kill_after_s)
        for order in orders:
            self._give(order, node)
        time.sleep(kill_after_s)  # not to synchronise: it is when the power fails
        for one in self.cluster.nodes:
            one.daemon.process.kill()
        for one in self.cluster.nodes:
            one.kill()
        self._check_disks()
        self.cluster.start()
        self.cluster.wait_formed()
        self._check_state()

    # Orders.

    def _give(self, order: str, node: LiveNode) -> None:
        full = len(self.yes.instances) >= MOST_PLACEMENTS
        if order == "place" and full:
            order = "delete"
        elif order == "delete" and not self.yes.instances:
            order = "place"
        self.orders[order](node)

    def _place(self, node: LiveNode) -> None:
        # A node that was drained in an earlier round takes nothing.
        for one in sorted(self.yes.draining):
            self._set_drain(node, one, draining=False)
        reply = node.post("/place_instance", {"model_id": TINY_MODEL_ID})
        assert reply.status == 200, reply
        self.yes.instances.add(reply.body["instance_id"])

    def _delete(self, node: LiveNode) -> None:
        instance_id = sorted(self.yes.instances)[0]
        reply = node.ask("DELETE", f"/instance/{instance_id}")
        assert reply.status == 200, reply
        self.yes.instances.discard(instance_id)

    def _trace(self, node: LiveNode) -> None:
        reply = node.ask("PUT", "/v1/tracing", {"enabled": not self.yes.tracing})
        assert (reply.status, reply.body["enabled"]) == (200, not self.yes.tracing), reply
        self.yes.tracing = not self.yes.tracing

    def _drain(self, node: LiveNode) -> None:
        target = self.chance.choice(self.cluster.nodes).name
        self._set_drain(node, target, draining=target not in self.yes.draining)

    def _set_drain(self, node: LiveNode, target: str, *, draining: bool) -> None:
        [node_id] = [one.node_id for one in self.cluster.nodes if one.name == target]
        reply = node.ask("PUT", "/v1/drain", {"draining": draining, "nodeIds": [node_id]})
        assert reply.status == 200, reply
        assert reply.body["nodes"][0]["draining"] is draining, reply
        (self.yes.draining.add if draining else self.yes.draining.discard)(target)

    def _configure(self, node: LiveNode) -> None:
        days = self.chance.randrange(4, 1000)
        reply = node.ask("PUT", "/config", {"tracing": {"retention_days": days}})
        assert reply.status == 200, reply
        self.yes.retention_days[node.name] = days

    # What must be there.

    def _check_disks(self) -> None:
        wanted = (self.yes.instances, self.yes.tracing)
        found = [_on_disk(node) for node in self.cluster.nodes]
        newest = max(found, key=lambda record: record.standing if record else (0, -2))
        if newest is not None or wanted != (set(), False):
            assert _content(newest) == wanted
        for node in self.cluster.nodes:
            assert (node.home / "drain.json").exists() is (node.name in self.yes.draining)
            days = self.yes.retention_days.get(node.name, 3)
            file = node.home / "skulk.yaml"
            assert check_config_text(file.read_bytes(), file).tracing.retention_days == days

    def _check_state(self) -> None:
        for node in self.cluster.nodes:
            told = node.get("/v1/placements")
            here = {one["instanceId"] for one in (*told["placements"], *told["waiting"])}
            assert here == self.yes.instances, node.name
            assert node.get("/v1/tracing")["enabled"] is self.yes.tracing, node.name


def _on_disk(node: LiveNode) -> ClusterRecord | None:
    """As the daemon would read it: a kill while a snapshot is written leaves the one before it."""
    directories = {file.parent for file in node.home.rglob("placements.*")}
    return RecordFile(directories.pop() / "placements.json").load() if directories else None


def _content(record: ClusterRecord | None) -> tuple[set[str], bool]:
    assert record is not None
    return {one.instance.instance_id for one in record.placements}, record.tracing


def play(cluster: LiveCluster, seed: int, orders: Sequence[Sequence[str]] | int) -> None:
    chance = random.Random(seed)
    rounds = Rounds(cluster, chance)
    names = tuple(rounds.orders)
    todo = [[chance.choice(names)] for _ in range(orders)] if isinstance(orders, int) else orders
    for number, some in enumerate(todo):
        log.info("seed %d, round %d", seed, number)
        rounds.play(some, chance.random() * LATEST_KILL_S if number else 0.0)


def test_nothing_acknowledged_is_lost_when_all_nodes_are_killed(cluster: StartCluster) -> None:
    # The last of a round is what the kill may catch; tracing is written as placements are.
    rounds = [["place"], ["tracing", "drain"], ["place", "config"], ["delete"]]
    play(cluster(2), 1, rounds)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("nodes", "rounds"), [(1, 60), (2, 80), (3, 60)])
def test_nothing_acknowledged_is_lost_in_two_hundred_rounds(
    cluster: StartCluster, nodes: int, rounds: int
) -> None:
    play(cluster(nodes), SEED, rounds)


def test_a_full_disk_and_a_lost_peer_end_in_one_cluster_that_works(
    small_disk: Path, tmp_path: Path
) -> None:
    """Calling a lost node again once needed space on the disk, and its failure ended the task."""
    two = LiveCluster(small_disk, f"full-{os.getpid()}", config="event_log: {enabled: false}\n")
    try:
        for _ in range(2):
            two.add(model=False, environ={"XDG_CACHE_HOME": str(tmp_path)})
        two.nodes[0].peers = [two.nodes[1].fabric]
        two.start()
        two.wait_formed()
        rest = small_disk / "rest"
        with pytest.raises(OSError, match="No space"), rest.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 512)
        one, other = two.nodes
        other.freeze()
        wait_until(lambda: is_alone(one), f"{one.name} to lose {other.name}", 60)
        other.thaw()
        two.wait_formed()
        tracing = False
        # The last page of the file may have room for some lines more.
        while (reply := one.ask("PUT", "/v1/tracing", {"enabled": not tracing})).status == 200:
            tracing = not tracing
        assert (reply.status, reply.body["error"]["refusal"]["kind"]) == (507, "StorageFull")
        assert all(node.get("/v1/tracing")["enabled"] is tracing for node in two.nodes)
        rest.unlink()
        assert one.ask("PUT", "/v1/tracing", {"enabled": True}).status == 200
        assert all(node.get("/v1/tracing")["enabled"] for node in two.nodes)
    finally:
        two.end()


def is_alone(node: LiveNode) -> bool:
    return [one["nodeId"] for one in node.view()["nodes"] if one["ok"]] == [node.node_id]
