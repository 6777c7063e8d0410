"""A rank of two dies or freezes while it decodes: how long until clients know, and until it serves.

Real daemons on loopback with the tiny model. Each round places the model anew, because three
crashes within a minute end the restarts.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure
from tests.cluster_live.chatting import stream
from tests.cluster_live.cluster import LiveCluster, live_cluster
from tests.sharded.group import answer, placed

ROUNDS = 5
DETECT_TO_SERVING_S = 5.0


@dataclass(frozen=True, slots=True)
class Loss:
    """Seconds from the signal to the error at the client, and from there to the next answer."""

    told_s: float
    serving_s: float


def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as base, live_cluster(Path(base) / "c", 2) as two:
        two.wait_links()
        first = _start(two)
        killed = [_lose(two, rank % 2, signal.SIGKILL) for rank in range(ROUNDS)]
        frozen = [_lose(two, rank % 2, signal.SIGSTOP) for rank in range(ROUNDS)]
        again = statistics.median(_start(two) for _ in range(ROUNDS))
    detail = f"the first one, which also imports MLX, took {first:.2f} s"
    return [
        _figure("killed", killed),
        _figure("frozen", frozen),
        Figure("Two ranks placed to serving", again, DETECT_TO_SERVING_S, "less", "s", detail),
    ]


def _figure(what: str, losses: list[Loss]) -> Figure:
    told = statistics.median(loss.told_s for loss in losses)
    serving = statistics.median(loss.serving_s for loss in losses)
    worst = max(loss.serving_s for loss in losses)
    detail = f"clients knew after {told:.2f} s; worst {worst:.2f} s of {len(losses)}"
    name = f"A rank {what}: from the error to the next answer"
    return Figure(name, serving, DETECT_TO_SERVING_S, "less", "s", detail)


def _start(two: LiveCluster) -> float:
    begun = time.monotonic()
    with placed(two, two.nodes):
        return time.monotonic() - begun


def _lose(two: LiveCluster, rank: int, number: signal.Signals) -> Loss:
    with placed(two, two.nodes) as group:
        running = stream(two.nodes[0])
        running.wait_tokens(3)
        pid = group.pid(rank)
        begun = time.monotonic()
        os.kill(pid, number)
        running.wait_end()
        told = running.ended_at or time.monotonic()
        if running.error is None or f"rank {rank} on " not in running.error["message"]:
            raise RuntimeError(f"the client was not told which rank: {running.end_text()}")
        # The question waits until the group is ready.
        answer(two.nodes[0], 1)
        return Loss(told - begun, time.monotonic() - told)
