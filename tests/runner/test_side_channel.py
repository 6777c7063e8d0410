"""The bytes that MLX exchanges while it joins over RDMA, on the ranks' own connections."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import pytest

from skulkd.runner.errors import GroupUnreachable
from skulkd.runner.group.mlx_group import SideChannel, cause_of, join_jaccl
from skulkd.runner.group.rank_server import RankCredentials
from skulkd.runner.group.rank_stream import Transport
from skulkd.runner.group.rendezvous import Connections, RankInfo, rendezvous
from skulkd.runner.protocol import JacclLinks
from tests.runner.rank_group import free_hosts
from tests.runner.runner_process import DEADLINE_S

OURS = RankCredentials(b"k" * 32, Transport(None))
Outcome = bytes | GroupUnreachable | None


def on_all_ranks(count: int, work: Callable[[int, Connections], Outcome]) -> list[Outcome]:
    """What each rank of a group that has met gets; a rank's connections end with its work."""
    hosts = free_hosts(count)
    results: list[Outcome] = [None] * count

    def run(rank: int) -> None:
        meeting = rendezvous(RankInfo(hosts, rank, OURS, {}, DEADLINE_S))
        try:
            results[rank] = work(rank, meeting)
        except GroupUnreachable as error:
            results[rank] = error
        finally:
            for channel in meeting.channels:
                channel.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    return results


def test_every_rank_gets_the_bytes_of_all_in_rank_order() -> None:
    def work(rank: int, meeting: Connections) -> bytes:
        gather = SideChannel(meeting, rank, DEADLINE_S).make(rank, 3)
        # The calls of JACCL for a mesh of three.
        return b"".join(gather(bytes([rank]) * length, length) for length in (4, 96, 4, 4))

    expected = b"".join(
        b"".join(bytes([rank]) * length for rank in range(3)) for length in (4, 96, 4, 4)
    )
    assert on_all_ranks(3, work) == [expected] * 3


def test_a_rank_that_ends_is_named_on_all_others() -> None:
    channels: dict[int, SideChannel] = {}

    def work(rank: int, meeting: Connections) -> Outcome:
        if rank == 1:
            return None
        channels[rank] = SideChannel(meeting, rank, DEADLINE_S)
        return channels[rank].make(rank, 3)(b"abcd", 4)

    leader, ended, other = on_all_ranks(3, work)
    assert ended is None
    assert "rank 1 at 127.0.0.1" in str(leader)
    assert "was lost while RDMA was set up" in str(leader)
    # It hears from rank 0 only, which has given up.
    assert "rank 0 at 127.0.0.1" in str(other)
    assert channels[0].failure is leader


def test_a_rank_that_says_nothing_is_not_waited_for_for_ever() -> None:
    silent = threading.Event()

    def work(rank: int, meeting: Connections) -> Outcome:
        if rank == 1:
            silent.wait(DEADLINE_S)
            return None
        try:
            return SideChannel(meeting, rank, 0.2).make(rank, 2)(b"abcd", 4)
        finally:
            silent.set()

    assert "rank 1 at 127.0.0.1" in str(on_all_ranks(2, work)[0])


def test_ranks_that_disagree_about_the_length_are_told_to_compare_versions() -> None:
    def work(rank: int, meeting: Connections) -> Outcome:
        length = 4 + rank
        return SideChannel(meeting, rank, DEADLINE_S).make(rank, 2)(b"x" * length, length)

    leader, _ = on_all_ranks(2, work)
    assert "sent 5 bytes of RDMA addresses, not 4" in str(leader)
    assert "same version of MLX" in str(leader)


def test_another_rank_than_ours_is_refused() -> None:
    with pytest.raises(GroupUnreachable, match="takes rank 0 of 1 for rank 0 of 2"):
        SideChannel(Connections(), 0, 1.0).make(0, 2)


@pytest.mark.skipif(sys.platform == "darwin", reason="MLX for macOS has JACCL")
def test_the_hook_is_known_to_mlx_which_has_no_rdma_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLX_RANK", "MLX_IBV_DEVICES", "MLX_JACCL_COORDINATOR", "MLX_JACCL_RING"):
        monkeypatch.setenv(name, "as before")
    links = JacclLinks(
        devices=[[None, "rdma_en2"], ["rdma_en3", None]], coordinator="127.0.0.1:5000"
    )
    with pytest.raises(GroupUnreachable, match="Cannot initialize jaccl distributed backend"):
        join_jaccl(links, 1, 60, SideChannel(Connections(), 1, 60))
    assert os.environ["MLX_RANK"] == "1"
    assert os.environ["MLX_JACCL_COORDINATOR"] == "127.0.0.1:5000"
    assert os.environ["MLX_IBV_DEVICES"].endswith("group.json")
    # Its mere presence would make MLX form a ring.
    assert "MLX_JACCL_RING" not in os.environ


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("[jaccl] Changing queue pair to RTR failed with errno 22", "cables"),
        ("[jaccl] Couldn't create queue pair", "restart this machine"),
        ("[jaccl] Creating the queue pair failed with errno 16", "restart this machine"),
        ("[jaccl] Couldn't allocate protection domain", "replug"),
        ("[jaccl] Could not find device rdma_en3 (0 available)", "rdma_ctl status"),
        ("[jaccl] something new", ""),
    ],
)
def test_errors_of_jaccl_are_explained(error: str, words: str) -> None:
    assert words in cause_of(error)
    assert bool(words) == bool(cause_of(error))
