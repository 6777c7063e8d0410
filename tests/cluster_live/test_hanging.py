"""A master whose event loop hangs: its sockets live, nobody follows it any more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster_live.cluster import LiveCluster, live_cluster
from tests.cluster_live.ptrace import main_thread_stopped
from tests.daemon_process import wait_until


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    base = tmp_path_factory.mktemp("hanging") / "cluster"
    with live_cluster(base, 3, arguments=["--no-worker"]) as made:
        yield made


def test_a_hung_master_is_deposed_and_follows_when_it_wakes(three: LiveCluster) -> None:
    hung = three.master()
    others = [node for node in three.nodes if node is not hung]
    old = hung.node_id
    with main_thread_stopped(hung.pid):

        def deposed() -> bool:
            masters = {node.view()["masterNodeId"] for node in others}
            return len(masters) == 1 and not masters & {old, None}

        wait_until(deposed, "another master", 300)
        chosen = others[0].view()["masterNodeId"]
    three.wait_formed()
    assert {node.view()["masterNodeId"] for node in three.nodes} == {chosen}


def test_a_hung_follower_is_lost_and_is_back_when_it_wakes(three: LiveCluster) -> None:
    master = three.master()
    hung, other = [node for node in three.nodes if node is not master]

    def said(words: str) -> bool:
        return any(words in line for line in master.daemon.stderr)

    with main_thread_stopped(hung.pid):
        lost = f"{hung.name} ({hung.node_id}) gives no sign of life"
        wait_until(lambda: said(lost), "the master to notice", 300)
        seen = {one["nodeId"] for one in master.view()["nodes"] if one["ok"]}
        assert hung.node_id not in seen
        # Only the master hears the beats of the others; nobody else waits for that node either.
        logs = f"/v1/diagnostics/cluster/{hung.node_id}/logs"
        wait_until(lambda: other.ask("GET", logs).status == 404, "the other to give it up", 300)
    wait_until(lambda: said(f"{hung.name} is back"), "it to be back", 300)
    three.wait_formed()
    assert {node.view()["masterNodeId"] for node in three.nodes} == {master.node_id}
    wait_until(lambda: other.ask("GET", logs).status == 200, "the other to ask it again", 300)
