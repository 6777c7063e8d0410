"""Real daemons on loopback: they form one cluster, and the loss of the master costs nothing."""

from __future__ import annotations

from tests.cluster_live.cluster import StartCluster


def test_three_form_lose_their_master_and_what_it_did_not_touch_runs_on(
    cluster: StartCluster,
) -> None:
    three = cluster(3)
    master = three.master()
    host, other = [node for node in three.nodes if node is not master]
    instance = three.place(on=host, via=other)
    three.wait_serving(instance)
    runners = host.runner_pids()
    master.kill()
    three.wait_formed([host, other])
    assert [list(node.state()["instances"]) for node in (host, other)] == [[instance]] * 2
    three.wait_serving(instance, [host, other])
    assert host.runner_pids() == runners
