"""What an idle daemon costs: memory, processor, and the time until it answers."""

from __future__ import annotations

import statistics
import time

import psutil

from bench.figures import Figure
from scripts.live_daemon import live_daemon

STARTS = 5
SETTLE_S = 5.0
"""The fabric is opened after the daemon is ready; what that costs belongs to the start."""
IDLE_S = 10.0
REFERENCE_RSS_MB = 113.0


def run() -> list[Figure]:
    ready = []
    for _ in range(STARTS - 1):
        with live_daemon("bench") as daemon:
            ready.append(daemon.ready_after_s)
    with live_daemon("bench") as daemon:
        ready.append(daemon.ready_after_s)
        process = psutil.Process(daemon.pid)
        time.sleep(SETTLE_S)
        before = sum(process.cpu_times()[:2])
        time.sleep(IDLE_S)
        busy = (sum(process.cpu_times()[:2]) - before) / IDLE_S
        rss_mb = process.memory_info().rss / 1e6
    return [
        Figure(
            "Idle resident memory",
            rss_mb,
            90,
            "less",
            "MB",
            f"{rss_mb / REFERENCE_RSS_MB:.2f} × the reference's {REFERENCE_RSS_MB:.0f} MB",
        ),
        Figure(
            "Start until the first answer",
            statistics.median(ready),
            1.5,
            "less",
            "s",
            f"median of {STARTS} starts",
        ),
        Figure(
            "Idle processor time, share of one core",
            busy * 100,
            2,
            "less",
            "%",
            f"over {IDLE_S:.0f} s, {SETTLE_S:.0f} s after the start",
        ),
    ]
