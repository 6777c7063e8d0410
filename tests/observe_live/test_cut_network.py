"""A network that is cut under a request, in namespaces: the verdict names the node behind the cut.

The lost node is silent for a while before the cluster gives it up, and its rank may be placed
anew afterwards; so the test waits for the verdict and not for a moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster_live.chatting import stream
from tests.cluster_live.cluster import LiveCluster, StartCluster
from tests.cluster_live.lan import Lan, lan, lan_missing
from tests.daemon_process import wait_until
from tests.observe_live.test_deadlocks import VERDICT_S, skulkctl, timeline_of

pytestmark = pytest.mark.skipif(lan_missing() is not None, reason=str(lan_missing()))


@pytest.fixture
def network() -> Iterator[Lan]:
    with lan(3) as made:
        yield made


def node_of(running: LiveCluster, rank: int) -> int:
    """The number of the node that holds this rank."""
    holders = {one["deviceRank"]: one["nodeId"] for one in timeline_of(running.nodes[0])}
    return next(at for at, node in enumerate(running.nodes) if node.node_id == holders[rank])


def test_a_node_behind_a_cut_is_named(network: Lan, cluster: StartCluster) -> None:
    running = cluster(3, machines=network.machines)
    running.wait_links()
    running.place(min_nodes=3)
    asked = running.nodes[node_of(running, 0)]
    lost = node_of(running, 2)
    answer = stream(asked)
    answer.wait_tokens(3)
    network.cut([lost], [at for at in range(3) if at != lost])

    def look() -> dict[str, Any] | None:
        done = skulkctl(asked, "timeline", "--check", "--hang-after", "2s", "-o", "json")
        assert done.stdout, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)["verdict"]["findings"][0]
        named = done.returncode == 7 and found["culprit"] is not None
        return found if named and found["state"] == "NODE GONE" else None

    found = wait_until(look, "the verdict on the cut", VERDICT_S)
    assert found["rule"] == "D24"
    assert found["culprit"]["nodeId"] == running.nodes[lost].node_id
    assert found["next"][-1] == "skulkctl nodes"
    answer.hang_up()
    network.heal()
