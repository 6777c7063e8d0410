"""Who may not join, and clusters that meet."""

from __future__ import annotations

from tests.cluster_live.chatting import question
from tests.cluster_live.cluster import LiveCluster, StartCluster, is_formed, make_cluster
from tests.daemon_process import wait_until

DEADLINE_S = 300.0


def test_strangers_stay_outside(cluster: StartCluster) -> None:
    two = cluster(2, arguments=("--no-worker",))
    wrong = two.add(secret="another-secret-altogether", arguments=("--no-worker",), model=False)
    foreign = two.add(
        environ={"SKULK_LIBP2P_NAMESPACE": "elsewhere"}, arguments=("--no-worker",), model=False
    )
    two.start(wrong, foreign)
    wait_until(lambda: is_formed([wrong]), "the stranger to lead itself", DEADLINE_S)
    wait_until(lambda: is_formed([foreign]), "the foreigner to lead itself", DEADLINE_S)

    def told() -> list[str]:
        return [line for line in wrong.daemon.stderr if "secret" in line]

    wait_until(told, "the stranger to say why", DEADLINE_S)
    members = {one["nodeId"] for node in two.nodes[:2] for one in node.view()["nodes"]}
    assert members == {node.node_id for node in two.nodes[:2]}
    assert is_formed(two.nodes[:2])
    assert set(wrong.state()["nodeIdentities"]) == {wrong.node_id}, "it sees nothing of the others"
    said = "\n".join(line for node in two.nodes for line in node.daemon.stderr)
    assert two.secret not in said
    assert "another-secret" not in said


def test_two_clusters_that_meet_become_one(cluster: StartCluster) -> None:
    left = cluster(2)
    right = make_cluster(left.base / "right", 2)
    right.namespace = left.namespace
    for node in right.nodes:
        node.name = f"{node.name}-east"
        config = (node.home / "skulk.yaml").read_text(encoding="utf-8")
        own = [line for line in config.splitlines() if "namespace" in line]
        shared = f"cluster: {{secret: {left.secret}, namespace: {left.namespace}}}"
        (node.home / "skulk.yaml").write_text(config.replace(own[0], shared), encoding="utf-8")
    try:
        right.start()
        right.wait_formed()
        left.wait_formed()
        placed = [side.place(on=side.nodes[1]) for side in (left, right)]
        runners = [side.nodes[1].runner_pids() for side in (left, right)]
        bridge = left.add(peers=[left.nodes[0], right.nodes[0]], arguments=("--no-worker",))
        left.start(bridge)
        everybody = LiveCluster(left.base, left.namespace, nodes=[*left.nodes, *right.nodes])
        everybody.wait_formed()
        for instance in placed:
            everybody.wait_serving(instance)
        assert [side.nodes[1].runner_pids() for side in (left, right)] == runners
        assert bridge.post("/v1/chat/completions", question()).status == 200
    finally:
        right.end()
