"""Real clusters on loopback: forming, losing nodes, and what many idle nodes cost.

`python -m bench cluster` takes some minutes; CLUSTER_SIZES=8 shortens the curve.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.figures import Figure
from tests.cluster_live.busy import busy_cores
from tests.cluster_live.chatting import Answer, question, stream
from tests.cluster_live.cluster import LiveCluster, is_formed, make_cluster
from tests.cluster_live.lan import Machine, lan, lan_missing
from tests.cluster_live.live_node import LiveNode

SIZES = tuple(int(word) for word in os.environ.get("CLUSTER_SIZES", "8,16,32").split(","))
ROUNDS = 5
STREAMS = 8
IDLE_S = 20.0
DEADLINE_S = 180.0
_POLL_S = 0.01


def run() -> list[Figure]:
    return [_formation(), *_losses(), _loss_to_error(), _failover(), *_curve()]


@contextmanager
def _cluster(
    count: int, *arguments: str, machines: Sequence[Machine] = ()
) -> Iterator[LiveCluster]:
    with tempfile.TemporaryDirectory() as base:
        where = Path(base) / "cluster"
        made = make_cluster(where, count, arguments=arguments, machines=machines)
        try:
            yield made
        finally:
            made.end()


def _wait(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> float:
    """The moment at which it held."""
    ends = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > ends:
            raise TimeoutError("the cluster did not get there")
        time.sleep(_POLL_S)
    return time.monotonic()


def _form(cluster: LiveCluster) -> tuple[float, float]:
    """Seconds until all agree: after the last daemon was up, and after all were started."""
    begun = time.monotonic()
    cluster.start()
    up = time.monotonic()
    formed = _wait(lambda: is_formed(cluster.nodes))
    return formed - up, formed - begun


def _formation() -> Figure:
    taken = []
    for _ in range(ROUNDS):
        with _cluster(3) as three:
            taken.append(_form(three))
    after_up = statistics.median(one for one, _ in taken)
    whole = statistics.median(one for _, one in taken)
    detail = f"{whole:.1f} s from nothing, process starts included; median of {ROUNDS}"
    return Figure("Formation of 3 nodes, all daemons up", after_up, 2.0, "less", "s", detail)


def _losses() -> Iterator[Figure]:
    """Workers and masters in turns vanish while a loop keeps every core busy."""
    with _cluster(3, "--no-worker") as three, busy_cores():
        _form(three)
        for what, how, bound_s in (
            ("killed", signal.SIGKILL, 2.0),
            ("frozen", signal.SIGSTOP, 4.0),
        ):
            taken = []
            for number in range(2 * ROUNDS):
                victim = _victim(three, master=bool(number % 2))
                taken.append(_notice(three, victim, lambda one, how=how: os.kill(one.pid, how)))
                _rejoin(three, victim)
            yield _noticed(what, taken, bound_s)
    if lan_missing() is None:
        yield _noticed("cut off", _cut_off(), 4.0)


def _cut_off() -> list[float]:
    """The same for a machine whose cable is pulled."""
    taken = []
    with lan(3) as network, _cluster(3, "--no-worker", machines=network.machines) as three:
        _form(three)
        with busy_cores():
            for number in range(ROUNDS):
                victim = _victim(three, master=bool(number % 2))
                alone = three.nodes.index(victim)
                rest = [one for one in range(3) if one != alone]
                taken.append(_notice(three, victim, lambda _, a=alone, b=rest: network.cut([a], b)))
                network.heal()
                three.wait_formed()
    return taken


def _noticed(what: str, taken: Sequence[float], bound_s: float) -> Figure:
    detail = f"by all others; median {statistics.median(taken):.2f} s, worst of {len(taken)}"
    name = f"Node {what} to its loss noticed, all cores busy"
    return Figure(name, max(taken), bound_s, "less", "s", detail)


def _victim(three: LiveCluster, *, master: bool) -> LiveNode:
    leads = three.master()
    return next(one for one in three.nodes if (one is leads) == master)


def _notice(three: LiveCluster, victim: LiveNode, lose: Callable[[LiveNode], None]) -> float:
    """Seconds until none of the others counts the node any more."""
    others = [one for one in three.nodes if one is not victim]
    gone = victim.node_id
    begun = time.monotonic()
    lose(victim)
    return _wait(lambda: not any(_sees(one, gone) for one in others)) - begun


def _sees(node: LiveNode, node_id: str) -> bool:
    return any(one["nodeId"] == node_id and one["ok"] for one in node.view()["nodes"])


def _loss_to_error() -> Figure:
    """Streams through one node on a model of another, which is killed or frozen."""
    taken: list[float] = []
    with _cluster(3) as three:
        _form(three)
        for number in range(ROUNDS):
            taken += _lose_the_holder(three, freeze=bool(number % 2))
    p95 = sorted(taken)[max(0, round(len(taken) * 0.95) - 1)]
    middle = statistics.median(taken)
    detail = f"median {middle:.2f} s, worst {max(taken):.2f} s, {len(taken)} streams"
    return Figure("Node lost to error at the client, p95", p95, 4.0, "less", "s", detail)


def _lose_the_holder(three: LiveCluster, *, freeze: bool) -> list[float]:
    master = three.master()
    victim, asked = [node for node in three.nodes if node is not master]
    three.place(on=victim)
    answers = [stream(asked) for _ in range(STREAMS)]
    for answer in answers:
        answer.wait_tokens(2)
    taken = _lose(victim, answers, freeze=freeze)
    _rejoin(three, victim)
    _clear(three.master())
    return taken


def _clear(node: LiveNode) -> None:
    """No instance anywhere."""
    for instance in list(node.state()["instances"]):
        node.ask("DELETE", f"/instance/{instance}")
    _wait(lambda: not node.state()["instances"])


def _lose(victim: LiveNode, answers: Sequence[Answer], *, freeze: bool) -> list[float]:
    begun = time.monotonic()
    if freeze:
        os.kill(victim.pid, signal.SIGSTOP)
    else:
        os.kill(victim.pid, signal.SIGKILL)
    for answer in answers:
        answer.wait_end()
        if answer.error is None or victim.name not in answer.error["message"]:
            raise RuntimeError(f"a client was not told what was lost: {answer.end_text()}")
    return [(answer.ended_at or 0.0) - begun for answer in answers]


def _rejoin(cluster: LiveCluster, node: LiveNode) -> None:
    os.kill(node.pid, signal.SIGCONT)
    node.kill()
    cluster.start(node)
    cluster.wait_formed()


def _failover() -> Figure:
    """The master dies; requests to a model elsewhere go on all the while."""
    with _cluster(3) as three:
        _form(three)
        rounds = [_kill_the_master(three) for _ in range(ROUNDS)]
    slowest = max(gap for _, gap in rounds)
    detail = f"worst of {ROUNDS}; the slowest request meanwhile took {slowest:.2f} s"
    taken = max(took for took, _ in rounds)
    return Figure("Master killed to a new one serving", taken, 4.0, "less", "s", detail)


def _kill_the_master(three: LiveCluster) -> tuple[float, float]:
    """Seconds until the others agree on a new one, and of the slowest request meanwhile."""
    master = three.master()
    holder, asked = [node for node in three.nodes if node is not master]
    three.place(on=holder)
    gaps: list[float] = []

    def led() -> bool:
        sent = time.monotonic()
        if asked.post("/v1/chat/completions", question(2)).status != 200:
            raise RuntimeError("a request failed that did not touch the dead node")
        gaps.append(time.monotonic() - sent)
        return is_formed((holder, asked))

    begun = time.monotonic()
    master.kill()
    took = _wait(led) - begun
    _clear(asked)
    three.start(master)
    three.wait_formed()
    return took, max(gaps)


@dataclass(frozen=True, slots=True)
class _Load:
    """What a cluster that does nothing costs."""

    nodes: int
    formed_s: float
    rss_mb: float
    cpu_percent: float
    kib_per_s: float
    led_s: float
    """From the end of its master until all others follow a new one."""


def _curve() -> list[Figure]:
    loads = [_idle(size) for size in SIZES]
    figures = []
    for load in loads:
        detail = (
            f"formed in {load.formed_s:.1f} s, {load.rss_mb:.0f} MB and {load.cpu_percent:.1f} %"
            f" of a core for each over {IDLE_S:g} s"
        )
        bound = loads[0].kib_per_s / loads[0].nodes * load.nodes * 1.5
        name = f"{load.nodes} idle nodes: traffic of each"
        figures.append(Figure(name, load.kib_per_s, bound, "less", "KiB/s", detail))
        name = f"{load.nodes} nodes: master killed to all following a new one"
        figures.append(Figure(name, load.led_s, 3.0, "less", "s"))
    return figures


def _idle(size: int) -> _Load:
    with _cluster(size, "--no-worker") as many:
        _, formed_s = _form(many)
        session = many.nodes[0].view()["session"]["id"]
        processes = [psutil.Process(node.pid) for node in many.nodes]
        cpu = sum(_cpu_s(one) for one in processes)
        sent = _loopback_bytes()
        time.sleep(IDLE_S)
        cpu = sum(_cpu_s(one) for one in processes) - cpu
        sent = _loopback_bytes() - sent
        view = many.nodes[-1].view()
        if view["session"]["id"] != session or len(view["nodes"]) != size:
            raise RuntimeError("a cluster that does nothing lost its master or a node")
        return _Load(
            nodes=size,
            formed_s=formed_s,
            rss_mb=statistics.mean(one.memory_info().rss for one in processes) / 1e6,
            cpu_percent=cpu / IDLE_S / size * 100,
            kib_per_s=sent / IDLE_S / size / 1024,
            led_s=_behead(many),
        )


def _behead(many: LiveCluster) -> float:
    master = many.master()
    others = [node for node in many.nodes if node is not master]
    begun = time.monotonic()
    master.kill()
    return _wait(lambda: is_formed(others)) - begun


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _loopback_bytes() -> int:
    """Every packet counts once: what is sent on loopback."""
    counters = psutil.net_io_counters(pernic=True)
    name = "lo" if "lo" in counters else "lo0"
    return int(counters[name].bytes_sent)
