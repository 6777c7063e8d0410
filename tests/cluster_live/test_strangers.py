"""Who may not join."""

from __future__ import annotations

from tests.cluster_live.cluster import StartCluster, is_formed
from tests.daemon_process import wait_until

DEADLINE_S = 90.0


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
