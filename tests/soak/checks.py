"""What a cluster must come to after any chaos, by waiting for it."""

from __future__ import annotations

import logging

from tests.cluster_live.agreement import SETTLE_S, wait_equal, wait_tidy
from tests.cluster_live.chatting import question
from tests.cluster_live.cluster import LiveCluster, runners_of
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until
from tests.soak.client import LENGTHS, Texts
from tests.soak.growth import Inventory, totals, unplace_all, wait_no_growth
from tests.soak.wanted import Wanted

log = logging.getLogger(__name__)


def check_end(cluster: LiveCluster, wanted: Wanted, texts: Texts, before: Inventory) -> None:
    """One master, one state, all placements ready, answers, no growth, no process too many."""
    cluster.wait_formed(cluster.nodes)
    wait_until(lambda: not cluster.nodes[0].state()["tasks"], "no task that is left", SETTLE_S)
    wait_placed(cluster, wanted)
    for node in cluster.nodes:
        for model in {model for model, _ in texts}:
            wait_until(
                lambda one=node, of=model: answers(one, of, texts), f"{node.name} to answer {model}"
            )
    wait_equal(cluster.nodes)
    assert not wanted.wrong_settings(), "a setting that was acknowledged is gone"
    wait_tidy(cluster)
    wait_runners(cluster)
    unplace_all(cluster)
    now = wait_no_growth(cluster.nodes[0], before)
    log.info("%s had %s, has %s: %s", cluster.nodes[0].name, totals(before), totals(now), now)
    for node in cluster.nodes:
        assert node.stop() == 0, node.name
    wait_tidy(cluster)


def placed(node: LiveNode) -> dict[str, str]:
    """Instance id and model of everything that this node knows as placed."""
    return {
        instance_id: content["shardAssignments"]["modelId"]
        for instance_id, instance in node.state()["instances"].items()
        for content in instance.values()
    }


def wait_placed(cluster: LiveCluster, wanted: Wanted) -> None:
    """Until all that was acknowledged is placed and ready."""
    node = cluster.nodes[0]
    try:
        wait_until(
            lambda: wanted.wrong_placements(placed(node)) is None, "the placements", SETTLE_S
        )
    except AssertionError as error:
        waiting = node.get("/v1/placements")["waiting"]
        error.add_note(f"{wanted.wrong_placements(placed(node))}, waiting {waiting}")
        raise
    for instance_id in placed(node):
        cluster.wait_serving(instance_id, [node])


def answers(node: LiveNode, model: str, texts: Texts) -> bool:
    """A copy of the model may just be going; the client is told to ask again then, as always."""
    reply = node.post("/v1/chat/completions", question(LENGTHS[-1], model=model))
    if reply.status != 200:
        log.info("%s: %s", node.name, reply)
        assert "retry-after" in reply.headers, f"{node.name}: {reply}"
        return False
    assert reply.body["choices"][0]["message"]["content"] == texts[model, LENGTHS[-1]]
    return True


def wait_runners(cluster: LiveCluster) -> None:
    """Until there is one process for each rank."""
    instances = cluster.nodes[0].state()["instances"].values()
    ranks = sum(len(runners_of(one)) for one in instances)

    def fits() -> bool:
        return sum(len(node.runner_pids()) for node in cluster.nodes) == ranks

    wait_until(fits, f"{ranks} runners", SETTLE_S)
