"""The journal alone: three nodes on the real fabric, one of them a follower that has much to say.

Without daemons around it, so that nothing but ordering, carrying and applying events is measured.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from bench.figures import Figure
from skulkd.cluster.cluster import Changes, Cluster, Self
from skulkd.cluster.fabric import FabricPlan
from skulkd.cluster.ruling import Rules
from skulkd.cluster.telemetry import Telemetry
from skulkd.wire import events
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, TaskId
from skulkd.wire.tasks import TextGeneration, TextGenerationTaskParams
from tests.cluster_live.cluster import free_port

NODES = 3
WARM_UP = 9_000
MANY = 100_000
IN_FLIGHT = 2_000
DEADLINE_S = 300.0


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as base:
        ports = [free_port() for _ in range(NODES)]
        children = [_spawn(number, ports, Path(base)) for number in range(NODES)]
        try:
            return _measure(children)
        finally:
            for child in children:
                child.kill()
                child.wait()


def _spawn(number: int, ports: Sequence[int], base: Path) -> subprocess.Popen[str]:
    words = [str(number), str(base / f"node{number}"), *map(str, ports)]
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


def _measure(children: Sequence[subprocess.Popen[str]]) -> list[Figure]:
    masters = {_ask(child, formed=NODES)["master"] for child in children}
    if len(masters) != 1:
        raise RuntimeError(f"no agreement on a master: {masters}")
    follower = next(child for child in children if not _ask(child)["leads"])
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


def _node(number: int, home: Path, ports: Sequence[int]) -> Cluster:
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
    return Cluster(
        Self(node_id, f"bench{number}", "0.0.0", lambda: [own]),
        plan,
        Rules(replan=lambda _instance: "nothing is placed here"),
        Changes(lambda _state, _entries: None, lambda _state: None, lambda _name: None),
        Telemetry(),
    )


async def _serve(number: int, home: Path, ports: Sequence[int]) -> None:
    cluster = _node(number, home, ports)
    await cluster.open()
    running = asyncio.create_task(cluster.run())
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        await _do(cluster, json.loads(line))
        told = {
            "master": cluster.master(),
            "leads": cluster.master() == cluster.core.node_id,
            "head": cluster.core.ledger.head,
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    running.cancel()


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.001)


async def _do(cluster: Cluster, question: dict[str, int]) -> None:
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
    asyncio.run(_serve(int(sys.argv[1]), Path(sys.argv[2]), [int(word) for word in sys.argv[3:]]))
