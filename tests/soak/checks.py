"""What a cluster must come to after any chaos, by waiting for it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

import psutil

from tests.cluster_live.agreement import SETTLE_S, wait_equal, wait_tidy
from tests.cluster_live.chatting import question
from tests.cluster_live.cluster import LiveCluster, runners_of
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until
from tests.soak.client import LENGTHS, Texts
from tests.soak.wanted import Wanted

SLACK = {"threads": 24, "files": 48}
"""Pools fill up and connections linger; a leak goes on and on."""

log = logging.getLogger(__name__)


def check_end(cluster: LiveCluster, wanted: Wanted, texts: Texts, calm: Mapping[str, int]) -> None:
    """One master, one state, everything placed and ready, answers, and no process too many."""
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
    wait_small(cluster.nodes[0], calm)
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


def sizes(node: LiveNode) -> dict[str, int]:
    """What a leak would make grow in the daemon's own process."""
    process = psutil.Process(node.pid)
    return {"threads": process.num_threads(), "files": process.num_fds()}


def wait_small(node: LiveNode, calm: Mapping[str, int]) -> None:
    """Until a daemon that lived through it all is about as small as it was before."""
    found: dict[str, int] = {}

    def small() -> bool:
        found.update(sizes(node))
        return all(found[key] <= calm[key] + SLACK[key] for key in calm)

    try:
        wait_until(small, f"{node.name} to be as small as before", SETTLE_S)
    except AssertionError as error:
        error.add_note(f"calm {dict(calm)}, now {found}: {open_files(node)}")
        raise
    log.info("%s had %s, has %s", node.name, dict(calm), found)


def open_files(node: LiveNode) -> list[str]:
    process = psutil.Process(node.pid)
    with contextlib.suppress(psutil.Error):
        connections = [f"{one.laddr} {one.raddr} {one.status}" for one in process.net_connections()]
        return [*(one.path for one in process.open_files()), *connections]
    return []
