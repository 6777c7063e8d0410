"""A network that is cut under a request, in namespaces: the verdict names the node behind the cut.

The lost node is silent for a while before the cluster gives it up, and its rank may be placed
anew afterwards; the verdict names it before and after that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster_live.chatting import stream
from tests.cluster_live.cluster import LiveCluster, StartCluster
from tests.cluster_live.lan import Lan, lan, lan_missing
from tests.daemon_process import wait_until
from tests.observe_live.test_deadlocks import VERDICT_S, timeline_of

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

    def look() -> str | None:
        """The node that the verdict names."""
        done = asked.skulkctl("timeline", "--check", "--hang-after", "2s", "-o", "json")
        findings = json.loads(done.out)["verdict"]["findings"] if done.out else []
        for finding in findings:
            if finding["state"] == "NODE GONE" and finding["culprit"]:
                assert (done.code, finding["rule"]) == (7, "D24")
                assert finding["next"][-1] == "skulkctl nodes"
                return str(finding["culprit"]["node"])
        return None

    name = running.nodes[lost].name
    assert wait_until(look, "the node behind the cut", VERDICT_S) == name
    wait_until(lambda: asked.get("/v1/cluster")["lost"], "the cluster gives it up", VERDICT_S)
    assert look() == name, "named as long as it is away"
    answer.hang_up()
    network.heal()
