"""The journal alone: three nodes on the real fabric, one of them a follower that has much to say.

Without daemons around it, so that nothing but ordering, carrying, applying and writing is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from bench.figures import Figure, alternate
from skulkd.cluster.cluster import ClusterNode, LocalNode, StateListeners
from skulkd.cluster.commands import Commands
from skulkd.cluster.commits import Decision
from skulkd.cluster.disk import RecordFile
from skulkd.cluster.fabric import FabricPlan
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.leader import LeaderPolicy
from skulkd.cluster.telemetry import Telemetry
from skulkd.wire import events
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, TaskId
from skulkd.wire.tasks import TextGeneration, TextGenerationTaskParams
from tests.cluster_live.cluster import free_port
from tests.daemon.builders import an_instance

NODES = 3
WARM_UP = 9_000
MANY = 100_000
IN_FLIGHT = 2_000
DEADLINE_S = 300.0
PLACEMENTS = 1000
AT_ONCE = 64
STANDING = 50
ROUNDS = 20
SINGLE = 10
DURABLE, VOLATILE = "durable", "volatile"
"""Whether the nodes of a cluster keep placements on disk; daemons always do."""


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as base:
        with _children(Path(base), VOLATILE) as volatile:
            figures = _measure(volatile)
        with (
            _children(Path(base) / "again", VOLATILE) as volatile,
            _children(Path(base), DURABLE) as durable,
        ):
            return [*figures, *_measure_placements(durable, volatile)]


@contextlib.contextmanager
def _children(base: Path, kind: str) -> Iterator[list[subprocess.Popen[str]]]:
    ports = [free_port() for _ in range(NODES)]
    children = [_spawn(number, ports, base / kind, kind) for number in range(NODES)]
    try:
        yield children
    finally:
        for child in children:
            child.kill()
            child.wait()


def _spawn(number: int, ports: Sequence[int], base: Path, kind: str) -> subprocess.Popen[str]:
    words = [str(number), str(base / f"node{number}"), kind, *map(str, ports)]
    return subprocess.Popen(
        [sys.executable, "-m", "bench.journal", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _ask(child: subprocess.Popen[str], **question: object) -> Any:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(question) + "\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())


def _follower(children: Sequence[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    masters = {_ask(child, formed=NODES)["master"] for child in children}
    if len(masters) != 1:
        raise RuntimeError(f"no agreement on a master: {masters}")
    return next(child for child in children if not _ask(child)["leads"])


def _measure_placements(
    durable: Sequence[subprocess.Popen[str]], volatile: Sequence[subprocess.Popen[str]]
) -> list[Figure]:
    """Commands of a follower, answered when they are on the master's disk and one follower's."""
    writing, keeping = _follower(durable), _follower(volatile)
    for child in (writing, keeping):
        _ask(child, place=SINGLE, at_once=1)

    def median_ms(child: subprocess.Popen[str]) -> float:
        return 1e3 * statistics.median(_ask(child, place=SINGLE, at_once=1)["took_s"])

    single = alternate(
        ROUNDS, {DURABLE: lambda: median_ms(writing), VOLATILE: lambda: median_ms(keeping)}
    )
    begun = time.monotonic()
    _ask(writing, place=PLACEMENTS, at_once=AT_ONCE)
    took_s = time.monotonic() - begun
    return [
        Figure(
            "Journal: placements on disk on 2 of 3 nodes before they are answered",
            PLACEMENTS / took_s,
            500,
            "more",
            "placements/s",
            f"{PLACEMENTS} in {took_s:.1f} s, {AT_ONCE} at once, sent by a follower",
        ),
        Figure(
            "Journal: what that adds to the answer to one placement, median",
            single[DURABLE] - single[VOLATILE],
            10.0,
            "less",
            "ms",
            f"{single[DURABLE]:.1f} ms, {single[VOLATILE]:.1f} ms without disks, taken in turns",
        ),
    ]


def _measure(children: Sequence[subprocess.Popen[str]]) -> list[Figure]:
    follower = _follower(children)
    _burst(children, follower, WARM_UP)
    before = psutil.Process(follower.pid).memory_info().rss
    took_s = _burst(children, follower, MANY)
    grown_mb = (psutil.Process(follower.pid).memory_info().rss - before) / 1e6
    return [
        Figure(
            "Journal: events of a follower, ordered and applied on 3 nodes",
            MANY / took_s,
            2000,
            "more",
            "events/s",
            f"{MANY} events in {took_s:.1f} s",
        ),
        Figure(
            "Journal: memory of that follower, grown over 100 000 events",
            grown_mb,
            8.0,
            "less",
            "MB",
            f"after a warm-up of {WARM_UP} events",
        ),
    ]


def _burst(
    children: Sequence[subprocess.Popen[str]], follower: subprocess.Popen[str], count: int
) -> float:
    """Seconds until everybody has applied what one node said."""
    head = max(_ask(child)["head"] for child in children)
    begun = time.monotonic()
    _ask(follower, append=count)
    for child in children:
        _ask(child, wait_head=head + count)
    return time.monotonic() - begun


# --- a node ---


def _task(number: int) -> list[events.Event]:
    task_id = TaskId(f"task-{number}")
    params = TextGenerationTaskParams(model=ModelId("org/model"), input=[])
    task = TextGeneration(
        task_id=task_id,
        instance_id=InstanceId("instance"),
        command_id=CommandId(f"command-{number}"),
        task_params=params,
    )
    return [
        events.TaskCreated(task_id=task_id, task=task),
        events.TaskStatusUpdated(task_id=task_id, task_status="Running"),
        events.TaskDeleted(task_id=task_id),
    ]


def _placing(node_id: NodeId) -> Callable[[bytes, JournalReplica], Decision]:
    def place(body: bytes, journal: JournalReplica) -> Decision:
        """One more on the master; the oldest goes, so that the state stays as large."""
        made: list[events.Event] = [
            events.InstanceCreated(instance=an_instance(body.decode(), (node_id,)))
        ]
        if len(journal.state.instances) >= STANDING:
            made.append(events.InstanceDeleted(instance_id=next(iter(journal.state.instances))))
        return Decision(made)

    return place


def _node(number: int, home: Path, kind: str, ports: Sequence[int]) -> ClusterNode:
    node_id = NodeId(f"node-{number:016x}")
    own = f"127.0.0.1:{ports[number]}"
    plan = FabricPlan(
        node_id=node_id,
        secret="a-secret-for-the-bench",
        namespace="bench",
        listen=own,
        home=home,
        peers=[f"127.0.0.1:{port}" for port in ports if port != ports[number]],
    )
    return ClusterNode(
        LocalNode(node_id, f"bench{number}", "0.0.0", lambda: [own]),
        plan,
        LeaderPolicy(replan=lambda _instance: "nothing is placed here"),
        StateListeners(lambda _state, _entries: None, lambda _state: None, lambda _name: None),
        Telemetry(),
        RecordFile(home / "placements.json") if kind == DURABLE else None,
    )


async def _serve(number: int, home: Path, kind: str, ports: Sequence[int]) -> None:
    cluster = _node(number, home, kind, ports)
    commands = Commands(cluster.peers, cluster)
    commands.register("place", _placing(cluster.core.node_id))
    await cluster.open()
    running = asyncio.create_task(cluster.run())
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        question = json.loads(line)
        await _do(cluster, question)
        told = {
            "took_s": await _send_all(commands, question.get("place", 0), question.get("at_once")),
            "master": cluster.master(),
            "leads": cluster.master() == cluster.core.node_id,
            "head": cluster.core.journal.head,
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    running.cancel()


async def _send_all(commands: Commands, count: int, at_once: int | None) -> list[float]:
    """Seconds until each was answered."""
    slots = asyncio.Semaphore(at_once or 1)

    async def send() -> float:
        async with slots:
            begun = time.monotonic()
            await commands.send("place", str(uuid4()).encode(), DEADLINE_S)
            return time.monotonic() - begun

    return list(await asyncio.gather(*(send() for _ in range(count))))


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.001)


async def _do(cluster: ClusterNode, question: dict[str, int]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        if count := question.get("formed"):
            await _until(lambda: len(cluster.peers.others()) >= count - 1)
            await _until(lambda: cluster.master() is not None)
        for number in range(0, question.get("append", 0), 3):
            await _until(lambda: len(cluster.core.pending) <= IN_FLIGHT)
            for event in _task(number):
                cluster.append(event)
        if (wanted := question.get("wait_head")) is not None:
            await cluster.wait_for(wanted, DEADLINE_S)


if __name__ == "__main__":
    ports = [int(word) for word in sys.argv[4:]]
    asyncio.run(_serve(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], ports))
