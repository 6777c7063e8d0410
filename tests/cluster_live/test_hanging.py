"""A master whose event loop hangs: its sockets live, nobody follows it any more."""

from __future__ import annotations

from tests.cluster_live.cluster import StartCluster
from tests.cluster_live.ptrace import main_thread_stopped
from tests.daemon_process import wait_until


def test_a_hung_master_is_deposed_and_follows_when_it_wakes(cluster: StartCluster) -> None:
    three = cluster(3, arguments=["--no-worker"])
    hung = three.master()
    others = [node for node in three.nodes if node is not hung]
    old = hung.node_id
    with main_thread_stopped(hung.pid):

        def deposed() -> bool:
            masters = {node.view()["masterNodeId"] for node in others}
            return len(masters) == 1 and not masters & {old, None}

        wait_until(deposed, "another master", 90)
        chosen = others[0].view()["masterNodeId"]
    three.wait_formed()
    assert {node.view()["masterNodeId"] for node in three.nodes} == {chosen}
