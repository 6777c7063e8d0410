"""One model over several real daemons: the answers are those of one node."""

from __future__ import annotations

import os
import signal

import pytest

from tests.cluster_live.chatting import stream
from tests.cluster_live.cluster import LiveCluster
from tests.sharded.group import answer, create, delete, is_process, placed


@pytest.fixture(scope="module")
def expected(three: LiveCluster) -> str:
    """What one node answers."""
    with placed(three, three.nodes[:1]):
        text = answer(three.nodes[0])
    assert text
    return text


@pytest.mark.parametrize(("size", "sharding"), [(2, "Pipeline"), (3, "Pipeline"), (2, "Tensor")])
def test_every_way_of_sharing_answers_like_one_node_whoever_is_asked(
    three: LiveCluster, expected: str, size: int, sharding: str
) -> None:
    with placed(three, three.nodes[:size], sharding=sharding) as group:
        assert len(group.pids()) == size
        assert [answer(node) for node in three.nodes] == [expected] * 3


CAUSES = {signal.SIGKILL: "signal=9 (SIGKILL)", signal.SIGSTOP: "stopped by a signal"}
# In CI each rank of three once; `make soak` has the rest, and `tests/soak` ranks of two.
QUICK = [(3, 0, signal.SIGSTOP), (3, 1, signal.SIGKILL), (3, 2, signal.SIGSTOP)]
EVERY = [(size, rank, number) for size in (2, 3) for rank in range(size) for number in CAUSES]


@pytest.mark.parametrize(
    ("size", "rank", "number"),
    [one if one in QUICK else pytest.param(*one, marks=pytest.mark.slow) for one in EVERY],
)
def test_a_rank_that_dies_or_freezes_is_named_and_the_group_serves_again(
    three: LiveCluster, expected: str, size: int, rank: int, number: signal.Signals
) -> None:
    with placed(three, three.nodes[:size]) as group:
        running = stream(three.nodes[2])
        running.wait_tokens(3)
        old = group.pids()
        victim = group.nodes[rank]
        os.kill(group.pid(rank), number)
        running.wait_end()
        assert running.error is not None, running.end_text()
        message = running.error["message"]
        assert f"rank {rank} on " in message
        assert victim.node_id in message
        assert CAUSES[number] in message
        group.wait_serving_again(old)
        assert not any(is_process(pid) for pid in old)
        assert answer(three.nodes[2]) == expected


def test_a_group_that_is_deleted_while_it_starts_leaves_nothing(
    three: LiveCluster, expected: str
) -> None:
    for _ in range(3):
        delete(create(three, three.nodes))
    with placed(three, three.nodes):
        assert answer(three.nodes[1]) == expected
