"""No false loss: a cluster on a machine whose cores are all busy stays as it is.

`make soak` runs it; SKULK_BUSY_SECONDS sets how long (600 by default).
"""

from __future__ import annotations

import logging
import os
import time

import pytest

from tests.cluster_live.agreement import losses, wait_equal
from tests.cluster_live.busy import busy_cores
from tests.cluster_live.cluster import StartCluster
from tests.cluster_live.live_node import LiveNode
from tests.cluster_live.test_losing import answers

BUSY_S = float(os.environ.get("SKULK_BUSY_SECONDS", "600"))
# What a daemon says when it believes that a node is gone, or that it must find another master.
log = logging.getLogger(__name__)
ALARMS = (" was lost", "gives no sign of life", "looking for a master", " lost kite")


@pytest.mark.slow
@pytest.mark.timeout(BUSY_S + 900)
def test_nobody_is_taken_for_dead_while_every_core_is_busy(cluster: StartCluster) -> None:
    three = cluster(3)
    three.place(on=three.nodes[1])
    before = sights(three.nodes)
    marks = {node.name: len(node.said()) for node in three.nodes}
    asked = 0
    with busy_cores():
        ends = time.monotonic() + BUSY_S
        while time.monotonic() < ends:
            assert answers(three.nodes[asked % 3]), f"request {asked}"
            assert sights(three.nodes) == before
            asked += 1
            time.sleep(0.5)
    assert asked > 0
    for node in three.nodes:
        said = node.said()[marks[node.name] :]
        alarms = [line for line in said if any(alarm in line for alarm in ALARMS)]
        assert not alarms, f"{node.name}: {alarms}"
        assert losses(node) == [], node.name
    three.wait_formed()
    wait_equal(three.nodes)
    log.info("%d requests were answered in %g s", asked, BUSY_S)


def sights(nodes: list[LiveNode]) -> list[tuple[str, list[str]]]:
    """The session that each node follows, and whom it sees."""
    views = [node.view() for node in nodes]
    return [(one["session"]["id"], sorted(m["nodeId"] for m in one["nodes"])) for one in views]
