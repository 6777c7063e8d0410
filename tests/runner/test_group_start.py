"""How ranks find each other, and what is said when they do not."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from skulkd.runner.errors import BadModel, GroupUnreachable
from skulkd.runner.exits import ExitCode
from skulkd.runner.faults import faults_of
from skulkd.runner.group.link_check import PORT_KEY, LinkProbe, check_links
from skulkd.runner.group.mlx_group import check_jaccl
from skulkd.runner.group.rank_auth import RankHello, SealedStream
from skulkd.runner.group.rank_server import RankCredentials, RankServer, dial
from skulkd.runner.group.rank_stream import Transport
from skulkd.runner.group.rendezvous import Channel, Connections, RankInfo, rendezvous
from skulkd.runner.model.sharding import check_slices
from skulkd.runner.protocol import JacclLinks, Phase, Status, TaskTrace
from skulkd.wire.ids import TaskId
from skulkd.wire.instances import Host
from skulkd.wire.runners import RunnerFailed
from skulkd.wire.tasks import ConnectToGroup
from tests.runner.rank_group import RankGroupOfRunners, free_hosts, spans
from tests.runner.runner_process import DEADLINE_S, INSTANCE

OURS = RankCredentials(b"k" * 32, Transport(None))
THEIRS = RankCredentials(b"x" * 32, Transport(None))
IdleRanks = Callable[..., RankGroupOfRunners]
refused_at_once = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux answers at every loopback address"
)


def party(hosts: list[Host], rank: int, deadline_s: float = DEADLINE_S) -> RankInfo:
    return RankInfo(hosts, rank, OURS, {"port": 1000 + rank}, deadline_s)


def in_threads(parties: list[RankInfo]) -> list[Connections | GroupUnreachable]:
    results: list[Connections | GroupUnreachable | None] = [None] * len(parties)

    def run(at: int) -> None:
        try:
            results[at] = rendezvous(parties[at])
        except GroupUnreachable as error:
            results[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(parties))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    return [result for result in results if result is not None]


def close(meetings: list[Connections | GroupUnreachable]) -> None:
    for one in meetings:
        for channel in one.channels if isinstance(one, Connections) else []:
            channel.close()


def test_every_rank_learns_what_every_rank_said() -> None:
    hosts = free_hosts(3)
    met = in_threads([party(hosts, rank) for rank in range(3)])
    assert all(isinstance(one, Connections) for one in met)
    said = [one.announcements for one in met if isinstance(one, Connections)]
    assert said == [[{"port": 1000}, {"port": 1001}, {"port": 1002}]] * 3
    close(met)


def test_strangers_are_sent_away() -> None:
    hosts = free_hosts(2)
    leader = threading.Thread(target=lambda: results.append(rendezvous(party(hosts, 0))))
    results: list[Connections] = []
    leader.start()
    other = RankInfo(hosts, 1, THEIRS, {}, DEADLINE_S)
    with pytest.raises(GroupUnreachable, match="is not rank 0 of this group"):
        rendezvous(other)
    joined = rendezvous(party(hosts, 1))
    leader.join(DEADLINE_S)
    close([*results, joined])
    assert len(results[0].channels) == 1


def test_a_missing_rank_is_named_with_its_address_to_everybody() -> None:
    hosts = free_hosts(3)
    # Time runs out as soon as one rank is there, however long that takes.
    times = iter([0.0, 0.0])
    leader = replace(party(hosts, 0), clock=lambda: next(times, 1e9))
    met = in_threads([leader, party(hosts, 1)])
    missing = f"rank 2 at 127.0.0.1:{hosts[2].port}"
    assert [isinstance(one, GroupUnreachable) and missing in str(one) for one in met] == [True] * 2


def test_a_farewell_is_not_a_loss() -> None:
    for farewell in (True, False):
        channel, other = _channels()
        lost = threading.Event()
        heard: list[bytes] = []
        channel.watch(heard.append, lambda _, lost=lost: lost.set())  # type: ignore[misc]
        other.send(b'{"number":1}')
        if farewell:
            other.send_goodbye()
        other.close()
        for thread in threading.enumerate():
            if thread.name == "rank-1":
                thread.join(DEADLINE_S)
        assert heard == [b'{"number":1}']
        assert lost.is_set() is not farewell
        channel.close()


def _channels(rank: int = 1) -> tuple[Channel, Channel]:
    """Rank 0's end of a connection, and the end of another rank."""
    met: queue.SimpleQueue[SealedStream] = queue.SimpleQueue()
    server = RankServer([("127.0.0.1", 0)], OURS, ("meeting", 0), met.put)
    theirs = dial(("127.0.0.1", server.port), OURS, RankHello("meeting", rank, 0), DEADLINE_S)
    ours = met.get(timeout=DEADLINE_S)
    server.close()
    return Channel(ours, rank, "there"), Channel(theirs, 0, "here")


def test_a_runner_that_waits_in_vain_says_for_whom(idle_ranks: IdleRanks, tiny: Path) -> None:
    lonely = idle_ranks(2)
    leader = lonely.leader
    lonely.configure_rank(leader, 0, tiny, connect_deadline_s=0.5)
    leader.run(ConnectToGroup(task_id=TaskId("connect"), instance_id=INSTANCE))
    leader.drain()
    assert leader.wait_exit() == ExitCode.CONNECT_DEADLINE
    failed = [m.status for m in leader.heard if isinstance(m, Status)][-1]
    assert isinstance(failed, RunnerFailed)
    assert f"rank 1 at 127.0.0.1:{lonely.hosts[1].port}" in (failed.error_message or "")


def test_a_rank_that_cannot_reach_rank_0_says_so(idle_ranks: IdleRanks, tiny: Path) -> None:
    lonely = idle_ranks(2)
    follower = lonely.ranks[1]
    lonely.configure_rank(follower, 1, tiny, connect_deadline_s=0.5)
    follower.run(ConnectToGroup(task_id=TaskId("connect"), instance_id=INSTANCE))
    follower.drain()
    assert follower.wait_exit() == ExitCode.CONNECT_DEADLINE
    assert f"rank 0 at 127.0.0.1:{lonely.hosts[0].port}" in follower.log_text()


@refused_at_once
@pytest.mark.parametrize(("rank", "after"), [(0, 1), (1, 2), (2, 0)])
def test_a_link_of_the_ring_that_is_broken_is_named_to_every_rank(rank: int, after: int) -> None:
    """The meeting is at rank 0; the ring also needs the links between the others."""
    hosts = free_hosts(3)
    elsewhere = Host(ip="127.0.0.9", port=hosts[after].port)
    bells = [LinkProbe("127.0.0.1", OURS, at) for at in range(3)]
    said = [{PORT_KEY: bell.port} for bell in bells]
    pairs = [_channels(1), _channels(2)]
    leader = Connections([ours for ours, _ in pairs], said)
    others = [Connections([theirs], said) for _, theirs in pairs]
    found: list[str] = []

    def check(at: int, meeting: Connections) -> None:
        dialled = [
            elsewhere if (at, to) == (rank, after) else host for to, host in enumerate(hosts)
        ]
        try:
            check_links(party(dialled, at), meeting)
        except GroupUnreachable as error:
            found.append(str(error))

    threads = [
        threading.Thread(target=check, args=(at, meeting))
        for at, meeting in enumerate([leader, *others])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    for bell in bells:
        bell.close()
    close([leader, *others])
    text = f"rank {rank} cannot reach rank {after} at 127.0.0.9, port {said[after][PORT_KEY]}: "
    assert [text in one for one in found] == [True] * 3


def test_a_bell_answers_nobody_but_its_own_group() -> None:
    bell = LinkProbe("127.0.0.1", THEIRS, 1)
    hosts = free_hosts(2)
    ours, other = _channels()
    meeting = Connections([ours], [{}, {PORT_KEY: bell.port}])
    other.send_json({"link": None})
    with pytest.raises(GroupUnreachable, match="rank 0 cannot reach rank 1 at"):
        check_links(party(hosts, 0), meeting)
    assert "rank 0 cannot reach rank 1" in other.receive_json(DEADLINE_S)["failed"]
    bell.close()
    other.close()


@refused_at_once
def test_runners_say_which_neighbour_did_not_answer_before_mlx_waits_for_it(
    idle_ranks: IdleRanks, tiny: Path
) -> None:
    several = idle_ranks(3)
    several.wrong_ways = {1: {2: Host(ip="127.0.0.9", port=several.hosts[2].port)}}
    several.configure(tiny)
    for runner in several.ranks:
        runner.run(ConnectToGroup(task_id=TaskId("connect"), instance_id=INSTANCE))
    for runner in several.ranks:
        runner.drain()
        assert runner.wait_exit() == ExitCode.CONNECT_DEADLINE
        assert "rank 1 cannot reach rank 2 at 127.0.0.9" in runner.log_text()


def test_a_stuck_rank_shows_where_the_others_wait(idle_ranks: IdleRanks, tiny: Path) -> None:
    """The rank that sleeps shows nothing new; the one that waits for it shows for what."""
    several = idle_ranks(2, "stall_before_barrier@0:4")
    several.configure(tiny)
    several.become_ready()
    several.ask("stuck", max_output_tokens=2)
    waiting = several.ranks[1].until(
        Phase,
        lambda m: m.entry.phase == "prefill_barrier" and m.entry.detail == "prefill_mx_barrier",
    )
    assert (waiting.phase, waiting.entry.event) == ("prefill_barrier", "enter")


def test_faults_are_for_one_rank_and_spelled_right() -> None:
    environ = {"SKULK_FAULTS": "delay@1:0.5;drop_task@*"}
    assert dict(faults_of(1, environ).seconds) == {"delay": 0.5, "drop_task": 3600.0}
    assert dict(faults_of(0, environ).seconds) == {"drop_task": 3600.0}
    assert faults_of(0, {}).seconds == {}
    with pytest.raises(ValueError, match="no_such_fault"):
        faults_of(0, {"SKULK_FAULTS": "no_such_fault@0"})


def test_a_lost_task_shows_as_agreement_that_waits(idle_ranks: IdleRanks, tiny: Path) -> None:
    several = idle_ranks(2, "drop_task@1")
    several.configure_rank(several.leader, 0, tiny)
    several.configure_rank(several.ranks[1], 1, tiny, eval_deadline_s=1.0)
    several.become_ready()
    several.ask("lost", max_output_tokens=4)
    follower = several.ranks[1]
    follower.drain()
    assert follower.wait_exit() == ExitCode.EVAL_WEDGE
    assert follower.entries()[-1].phase == "task_agreement"
    several.leader.drain()
    assert several.leader.wait_exit() == ExitCode.GROUP_LOST


def test_both_ranks_trace_a_task(idle_ranks: IdleRanks, tiny: Path) -> None:
    several = idle_ranks(2)
    several.configure(tiny)
    several.become_ready()
    task = several.ask("traced", trace=True, max_output_tokens=5)
    for rank, runner in enumerate(several.ranks):
        trace = spans(runner, task)
        names = {(one.name, one.category) for one in trace.traces}
        assert {one.rank for one in trace.traces} == {rank}
        assert {
            ("queued", "lifecycle"),
            ("admitted_to_batch", "lifecycle"),
            ("prompt_build", "prompt"),
            ("kv_cache_result", "kv_cache"),
            ("prefill", "prefill"),
            ("first_token", "decode"),
            ("decode", "decode"),
            ("decode_step", "decode"),
            ("finish", "lifecycle"),
        } <= names
        assert {one.node_id for one in trace.traces} == {f"node-{rank}"}
    quiet = several.ask("not traced", max_output_tokens=2)
    several.answer(quiet)
    assert {m.task_id for m in several.leader.heard if isinstance(m, TaskTrace)} == {task}


@pytest.mark.parametrize(
    ("devices", "available", "words"),
    [
        ([[None, "rdma_en2"], ["rdma_en3", None]], True, None),
        ([[None, "rdma_en2"], ["rdma_en3", None]], False, "TCP ring"),
        ([[None, None], ["rdma_en3", None]], True, "rank 0: RDMA device to rank 1 is None"),
        ([["rdma_en2", "rdma_en2"], ["rdma_en3", None]], True, "to itself is rdma_en2"),
        ([[None, "rdma_en2"], ["rdma_en3"]], True, "rank 1 has 1 RDMA devices"),
    ],
)
def test_rdma_links_are_checked(
    devices: list[list[str | None]], available: bool, words: str | None
) -> None:
    links = JacclLinks(devices=devices, coordinator="10.0.0.1:5000")
    if words is None:
        check_jaccl(links, available)
    else:
        with pytest.raises(GroupUnreachable, match=words):
            check_jaccl(links, available)


@pytest.mark.parametrize(
    ("config", "ranks", "words"),
    [
        ({"num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128}, 2, None),
        ({"num_attention_heads": 9, "num_key_value_heads": 3}, 2, "num_attention_heads is 9"),
        ({"num_attention_heads": 8, "num_key_value_heads": 2}, 4, "num_key_value_heads is 2"),
        ({"intermediate_size": 96, "quantization": {"group_size": 64}}, 2, "group of 64"),
    ],
)
def test_slices_must_be_even(config: dict[str, object], ranks: int, words: str | None) -> None:
    if words is None:
        check_slices(config, ranks)
    else:
        with pytest.raises(BadModel, match=words):
            check_slices(config, ranks)
