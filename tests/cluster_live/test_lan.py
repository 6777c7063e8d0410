"""Four machines on a LAN of network namespaces: discovery, cuts, loss and delay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.cluster_live.chatting import question, stream
from tests.cluster_live.cluster import LiveCluster, make_cluster
from tests.cluster_live.lan import Lan, lan, lan_missing
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

pytestmark = pytest.mark.skipif(lan_missing() is not None, reason=str(lan_missing()))

DEADLINE_S = 300.0
LEFT, RIGHT = [0, 1], [2, 3]


@pytest.fixture(scope="module")
def network() -> Iterator[Lan]:
    with lan(4) as made:
        yield made


@pytest.fixture(scope="module")
def four(network: Lan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Nobody was told an address: they find each other by multicast."""
    made = make_cluster(tmp_path_factory.mktemp("lan") / "cluster", 4, machines=network.machines)
    try:
        made.start()
        made.wait_formed()
        yield made
    finally:
        made.end()


@pytest.fixture(autouse=True)
def whole(network: Lan, four: LiveCluster) -> Iterator[None]:
    """Every test begins and ends with a network that is well and a cluster that has formed."""
    four.wait_formed()
    yield
    network.heal()
    four.wait_formed()


def answers(node: LiveNode) -> bool:
    return node.post("/v1/chat/completions", question()).status == 200


def side(four: LiveCluster, numbers: Sequence[int]) -> list[LiveNode]:
    return [four.nodes[number] for number in numbers]


def test_machines_find_each_other_and_measure_their_links(four: LiveCluster) -> None:
    four.wait_links()
    a, b = four.nodes[0], four.nodes[3]
    edges = a.state()["topology"]["connections"][a.node_id][b.node_id]
    assert b.machine is not None
    address = f"/ip4/{b.machine.address}/tcp/52415"
    assert [edge["sinkMultiaddr"]["address"] for edge in edges] == [address]


def test_a_cut_makes_two_clusters_and_healing_one(network: Lan, four: LiveCluster) -> None:
    placed = [four.place(on=four.nodes[number]) for number in (1, 3)]
    runners = [four.nodes[number].runner_pids() for number in (1, 3)]
    network.cut(LEFT, RIGHT)
    for numbers in (LEFT, RIGHT):
        four.wait_formed(side(four, numbers))
    for numbers in (LEFT, RIGHT):
        # Each side goes on with what it has.
        assert all(answers(node) for node in side(four, numbers))
    network.heal()
    four.wait_formed()
    for instance in placed:
        four.wait_serving(instance)
    # Both sides had placed what they lost anew. One copy of each is kept, that of the master's
    # side, and what ran there before the cut has run all the time.
    stays = 0 if four.master() in side(four, LEFT) else 1
    assert runners[stays][0] in four.nodes[(1, 3)[stays]].runner_pids()
    assert all(answers(node) for node in four.nodes)
    for instance in placed:
        assert four.nodes[0].ask("DELETE", f"/instance/{instance}").status == 200


def hears(node: LiveNode, other: LiveNode) -> bool:
    return any(one["nodeId"] == other.node_id and one["ok"] for one in node.view()["nodes"])


def test_a_one_way_cut_tears_nobody_else_apart(network: Lan, four: LiveCluster) -> None:
    # What machine 0 says does not reach 1. TCP needs both ways, so the two lose each other.
    deaf, mute = four.nodes[1], four.nodes[0]
    network.cut_one_way(0, 1)
    wait_until(lambda: not hears(deaf, mute), "the cut to be noticed", DEADLINE_S)

    def agreed() -> bool:
        well = four.nodes[2:]
        heard = all(hears(one, other) for one in well for other in well)
        return heard and len({one.view()["masterNodeId"] for one in well}) == 1

    wait_until(agreed, "the machines that hear everybody to agree", DEADLINE_S)


@pytest.mark.parametrize(
    ("loss", "delay_s"), [(0.05, 0.0), (0.0, 0.1)], ids=["loss of 5 %", "delay of 100 ms"]
)
def test_a_bad_network_is_slow_and_not_broken(
    network: Lan, four: LiveCluster, loss: float, delay_s: float
) -> None:
    instance = four.place(on=four.nodes[2])
    network.disturb(loss=loss, delay_s=delay_s)
    answer = stream(four.nodes[0], 64)
    answer.wait_end(DEADLINE_S)
    assert answer.finished, answer.end_text()
    assert answer.error is None
    # Nobody who is slow is taken for dead, and commands get through.
    four.wait_formed()
    assert four.nodes[1].ask("DELETE", f"/instance/{instance}").status == 200
