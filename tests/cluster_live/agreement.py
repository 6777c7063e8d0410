"""What a cluster must come to in the end, whatever happened: one state, and no process too many."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.cluster_live.cluster import LiveCluster
from tests.cluster_live.live_node import LiveNode
from tests.cluster_live.processes import leaked
from tests.daemon_process import wait_until

SETTLE_S = 600.0


def wait_equal(nodes: Sequence[LiveNode]) -> None:
    """Until all nodes hold the same state."""
    try:
        wait_until(lambda: len(set(map(essence, nodes))) == 1, "equal states", SETTLE_S)
    except AssertionError as error:
        for node in nodes:
            error.add_note(f"{node.name}: {essence(node)}")
        raise


def essence(node: LiveNode) -> str:
    """What all nodes must agree on: everything but each one's own measurements."""
    state = node.state()
    parts = ("instances", "runners", "tasks", "downloads", "tracingEnabled", "lastEventAppliedIdx")
    members = {name: sorted(state[name]) for name in ("nodeNetwork", "nodeIdentities")}
    return json.dumps([{key: state[key] for key in parts}, members], sort_keys=True)


def wait_tidy(cluster: LiveCluster) -> None:
    """Until no process is left that no living daemon owns."""
    try:
        wait_until(lambda: not leaked(cluster.base, cluster.nodes), "no leaked process", SETTLE_S)
    except AssertionError as error:
        error.add_note(f"left: {leaked(cluster.base, cluster.nodes)}")
        raise


def losses(node: LiveNode) -> list[str]:
    """Nodes that the event log of this one counts as lost."""
    found = (one.get("NodeTimedOut") for one in node.get("/events"))
    return [one["node_id"] for one in found if one is not None]
