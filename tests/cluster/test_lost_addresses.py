"""Where lost nodes are remembered: one entry for each daemon, however often it came back."""

from __future__ import annotations

from pathlib import Path

import pytest

from skulkd.cluster.cluster import ClusterNode
from skulkd.cluster.handshake import NodeHello, same_daemon
from skulkd.wire.ids import NodeId
from tests.cluster.clusters import Member

BRIDGE = "172.17.0.1:52416"


def meet(cluster: ClusterNode, node: str, *addresses: str) -> None:
    cluster.appeared(NodeId(node))
    cluster.received(NodeId(node), "one", NodeHello(node, "1.2.3", addresses).frame())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (["a:1"], ["a:1"], True),
        (["a:1"], ["a:2"], False),
        (["a:1", BRIDGE], ["b:1", BRIDGE], False),
        (["a:1", BRIDGE], ["a:1"], True),
        ([], ["a:1"], False),
        ([], [], False),
    ],
)
def test_a_daemon_is_known_by_all_of_its_addresses(
    one: list[str], other: list[str], same: bool
) -> None:
    assert same_daemon(one, other) is same
    assert same_daemon(other, one) is same


async def test_a_daemon_that_is_killed_again_and_again_is_called_once(tmp_path: Path) -> None:
    cluster = Member("a", tmp_path, []).cluster
    for start in range(5):
        meet(cluster, f"guest-{start}", "192.0.2.7:52416", BRIDGE)
        cluster.vanished(NodeId(f"guest-{start}"))
    assert list(cluster.gone) == ["guest-4"]
    meet(cluster, "other", "192.0.2.8:52416", BRIDGE)
    assert not cluster.is_connected(cluster.gone[NodeId("guest-4")])
    cluster.vanished(NodeId("other"))
    assert list(cluster.gone) == ["guest-4", "other"]
    meet(cluster, "guest-5", "192.0.2.7:52416", BRIDGE)
    assert cluster.is_connected(cluster.gone[NodeId("guest-4")])
    cluster.vanished(NodeId("guest-5"))
