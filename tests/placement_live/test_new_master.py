"""Who leads next knows what was ordered: exclusions hold, and a lost node's models are moved."""

from __future__ import annotations

import os
import shutil
import signal

from tests.cluster_live.cluster import StartCluster, nodes_of
from tests.cluster_live.fixtures import cluster
from tests.daemon_process import wait_until
from tests.placement_live.test_moving import DEADLINE_S, told

__all__ = ["cluster"]


def test_a_new_master_keeps_to_the_exclusions_of_an_order_it_never_saw(
    cluster: StartCluster,
) -> None:
    three = cluster(3)
    three.wait_links()
    master = three.master()
    there, unwanted = [node for node in three.nodes if node is not master]
    instance_id = three.place(on=there)
    record = there.get("/v1/placements")["placements"][0]["record"]
    assert sorted(record["excluded"].values()) == sorted([master.name, unwanted.name])
    master.kill()
    three.wait_formed([there, unwanted])

    shutil.rmtree(there.home / "models")
    [pid] = there.runner_pids()
    os.kill(pid, signal.SIGKILL)
    [refused] = wait_until(
        lambda: told(unwanted, "InstanceMoveRefused", instance_id), "the refusal", DEADLINE_S
    )
    assert (refused["cause"], refused["refusal"]) == ("staging-failed", "AllExcluded")
    assert nodes_of(unwanted.state()["instances"][instance_id]) == {there.node_id}

    # A node that was not wanted is better than no model.
    lost = there.node_id
    there.kill()
    [move] = wait_until(
        lambda: told(unwanted, "InstanceMoved", instance_id), "the move", DEADLINE_S
    )
    assert (move["cause"], move["attempt"], move["most"]) == ("node-lost", 1, None)
    assert (move["from_nodes"], move["to_nodes"]) == ([lost], [unwanted.node_id])
    assert move["reason"] == f"{there.name} is no longer in the cluster"
    three.wait_serving(instance_id, [unwanted])
