"""A group and the nodes around it: a new master costs nothing, the loss of a rank costs all."""

from __future__ import annotations

from tests.cluster_live.chatting import stream
from tests.cluster_live.cluster import StartCluster
from tests.daemon_process import wait_until
from tests.sharded.group import create, is_process


def test_a_new_master_does_not_disturb_a_group_and_a_lost_node_ends_it(
    cluster: StartCluster,
) -> None:
    three = cluster(3)
    three.wait_links()
    master = three.master()
    pair = [node for node in three.nodes if node is not master]
    group = create(three, pair)
    group.wait_serving()
    old = group.pids()
    leader, follower = group.nodes
    running = stream(leader)
    running.wait_tokens(3)

    master.kill()
    three.wait_formed(pair)
    running.wait_more()
    assert group.pids() == old

    lost = group.pid(1)
    lost_id = follower.node_id
    follower.kill()
    running.wait_end()
    assert running.error is not None, running.end_text()
    assert "rank 1 on " in running.error["message"], running.error
    assert lost_id in running.error["message"]
    wait_until(lambda: not any(is_process(pid) for pid in old | {lost}), "all ranks to end", 300)
