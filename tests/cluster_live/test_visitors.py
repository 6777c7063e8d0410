"""Nodes that come and go quickly leave nothing behind: no ghost, no process, no memory."""

from __future__ import annotations

import contextlib
import logging
import os

import psutil
import pytest

from tests.cluster_live.agreement import wait_equal, wait_tidy
from tests.cluster_live.cluster import LiveCluster, StartCluster
from tests.cluster_live.live_node import LiveNode
from tests.cluster_live.visitors import Visits, add_guests
from tests.daemon_process import wait_until

SEED = int(os.environ.get("SKULK_SOAK_SEED", "4"))
SETTLE_S = 300.0
GROWTH_MB = 30.0

log = logging.getLogger(__name__)


def test_nodes_come_and_go_quickly(cluster: StartCluster) -> None:
    come_and_go(cluster(2, arguments=("--no-worker",)), visits=6, guests=2)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_joins_and_leaves(cluster: StartCluster) -> None:
    core = cluster(3, arguments=("--no-worker",))
    # What the first visits make, connections, caches, pools, stays for the later ones.
    come_and_go(core, visits=20, guests=4)
    before = [weight(node) for node in core.nodes[:3]]
    guests = core.nodes[3:]
    for guest in guests:
        guest.stop()
    visit(core, Visits(200, guests, SEED))
    after = [weight(node) for node in core.nodes[:3]]
    log.info("megabytes of the core before and after: %s %s", before, after)
    grown = max(b - a for a, b in zip(before, after, strict=True))
    assert grown < GROWTH_MB, f"200 visits cost {grown:.1f} MB"


def come_and_go(core: LiveCluster, visits: int, guests: int) -> None:
    """Afterwards the guests are there to stay."""
    added = add_guests(core, guests)
    visit(core, Visits(visits, added, SEED))
    core.start(*added)
    core.wait_formed(core.nodes)


def visit(cluster: LiveCluster, visits: Visits) -> None:
    """The core is as it was when all guests have left."""
    core = [node for node in cluster.nodes if node not in visits.guests]
    threads = [psutil.Process(node.pid).num_threads() for node in core]
    visits.make(core)
    cluster.wait_formed(core)
    for node in core:
        wait_until(lambda one=node: no_ghost(one, core), f"{node.name} without ghosts", SETTLE_S)
    wait_equal(core)
    wait_tidy(cluster)
    for node, usual in zip(core, threads, strict=True):
        # A thread for every node that one speaks to; some are lent for a moment.
        wait_until(
            lambda one=node, few=usual: psutil.Process(one.pid).num_threads() <= few + 4,
            f"{node.name} without threads for nodes that left",
            SETTLE_S,
        )


def no_ghost(node: LiveNode, core: list[LiveNode]) -> bool:
    """Whether a node's state speaks of the core and of nobody else."""
    state, ids = node.state(), {one.node_id for one in core}
    edges = state["topology"]["connections"]
    spoken = {
        *state["topology"]["nodes"],
        *edges,
        *(sink for sinks in edges.values() for sink in sinks),
        *state["lastSeen"],
        *state["downloads"],
        *(one for key in state if key.startswith("node") for one in state[key]),
    }
    return spoken <= ids


def weight(node: LiveNode) -> float:
    """Megabytes in memory."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return float(psutil.Process(node.pid).memory_info().rss) / 1e6
    raise AssertionError(f"{node.name} is not there")
