"""An instance over several nodes of a live cluster, and the processes of its ranks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.chatting import question
from tests.cluster_live.cluster import SERVING, LiveCluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

DEADLINE_S = 300.0


@dataclass
class LiveGroup:
    cluster: LiveCluster
    instance_id: str

    @property
    def nodes(self) -> list[LiveNode]:
        """In rank order."""
        [content] = self.cluster.alive[0].state()["instances"][self.instance_id].values()
        shards = content["shardAssignments"]
        rank = {
            runner: shard["deviceRank"]
            for runner, tagged in shards["runnerToShard"].items()
            for shard in tagged.values()
        }
        ranked = sorted(shards["nodeToRunner"], key=lambda node: rank[shards["nodeToRunner"][node]])
        return [self.cluster.of(node) for node in ranked]

    def record(self, node: LiveNode) -> dict[str, Any] | None:
        """What the node knows of its rank; None while it has none."""
        records = node.get("/v1/diagnostics/node")["supervisorRunners"]
        found = [record for record in records if record["instanceId"] == self.instance_id]
        return found[0] if found else None

    def pids(self) -> set[int]:
        """Processes of the ranks that live now."""
        records = [self.record(node) for node in self.cluster.alive]
        return {one["pid"] for one in records if one is not None and one["processAlive"]}

    def pid(self, rank: int) -> int:
        record = self.record(self.nodes[rank])
        assert record is not None
        pid: int = record["pid"]
        return pid

    def wait_serving(self) -> None:
        self.cluster.wait_serving(self.instance_id)

    def wait_serving_again(self, old: set[int]) -> None:
        """Until every rank serves, in a process that was not there before."""
        size = len(self.nodes)

        def serves() -> bool:
            state = self.cluster.alive[0].state()
            now = self.pids()
            statuses = list(state["runners"].values())
            return len(now) == size and not now & old and all(s in SERVING for s in statuses)

        wait_until(serves, "all ranks to serve again", DEADLINE_S)
        self.wait_serving()


def create(cluster: LiveCluster, on: list[LiveNode], **body: Any) -> LiveGroup:
    """An instance of the tiny model over exactly these nodes, not waited for."""
    others = [node.node_id for node in cluster.alive if node not in on]
    wish = {"model_id": TINY_MODEL_ID, "min_nodes": len(on), "excluded_nodes": others, **body}
    placed = cluster.alive[0].post("/place_instance", wish)
    assert placed.status == 200, placed
    return LiveGroup(cluster, placed.body["instance_id"])


@contextlib.contextmanager
def placed(cluster: LiveCluster, on: list[LiveNode], **body: Any) -> Iterator[LiveGroup]:
    """The same, serving; it and its processes are gone afterwards."""
    group = create(cluster, on, **body)
    try:
        group.wait_serving()
        yield group
    finally:
        delete(group)


def delete(group: LiveGroup) -> None:
    pids = group.pids()
    group.cluster.alive[0].ask("DELETE", f"/instance/{group.instance_id}")

    def gone() -> bool:
        left = any(group.record(node) is not None for node in group.cluster.alive)
        return not left and not any(is_process(pid) for pid in pids)

    wait_until(gone, "every rank to be gone", DEADLINE_S)


def is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def answer(node: LiveNode, count: int = 24) -> str:
    """The greedy answer to the usual question, asked there."""
    reply = node.post("/v1/chat/completions", question(count))
    assert reply.status == 200, reply
    text: str = reply.body["choices"][0]["message"]["content"]
    return text
