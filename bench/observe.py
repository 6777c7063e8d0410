"""Figures of looking: verdict, timeline endpoint, event log, and what it costs."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from bench.figures import Figure, likely_medians

if TYPE_CHECKING:
    from skulkd.wire.timeline import Timeline

RUNNERS, ENTRIES, NODES = 32, 128, 8
APPENDS = 1_000_000
SMALL_RING_MIB = 32
DECODED = {"tiny": (100, 150, (1, 8)), "SmolLM2": (24, 15, (1,))}
"""Tokens, rounds, and how many at once. Two equal rounds differ by 4 %, so a few tell nothing;
eight of the real model would take half an hour."""
DECODE_BOUNDS = {"recorded": 1.0, "traced": 5.0}
"""Percent that a step may take longer than one that nobody observes."""


def run() -> list[Figure]:
    """All figures of this family."""
    return [
        _verdict(),
        asyncio.run(_timeline()),
        *_event_log(),
        *_decode_cost(),
    ]


def _hung_timeline() -> Timeline:
    from tests.timeline.builders import enter, rank, read, step, timeline

    ranks = []
    for instance in range(NODES):
        for number in range(RUNNERS // NODES):
            steps = [
                step(200 - one, "decode_stream", "decode_token_progress", completion_tokens=one)
                for one in range(ENTRIES - 1)
            ]
            stuck = enter(40, "prefill_pipeline", "pipeline_first_eval_recv")
            ranks.append(rank(number, [*steps, stuck], instance=f"i{instance}"))
    return read(timeline(*ranks, size=RUNNERS // NODES))


def _best_ms(work: Any, rounds: int = 20) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times) * 1000


def _verdict() -> Figure:
    from skulkctl.verdict import assess

    hung = _hung_timeline()
    took = _best_ms(lambda: assess(hung, hung))
    detail = f"{RUNNERS} runners, {ENTRIES} entries each"
    return Figure("verdict", took, 10, "less", "ms", detail)


async def _timeline() -> Figure:
    from skulkd.api import timeline
    from tests.api.in_process import serving, some_services
    from tests.observe.records import RecordingWorker, a_record, an_entry
    from tests.peer_mesh import peer_mesh

    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        mesh = peer_mesh(*(f"node-{number}" for number in range(NODES)))
        nodes = []
        for number, peers in enumerate(mesh):
            entries = [
                an_entry(one, "decode_stream", "decode_token_progress", f"node-{number}", number)
                for one in range(ENTRIES)
            ]
            records = [
                a_record(f"node-{number}", rank=rank, flight_recorder=entries)
                for rank in range(RUNNERS // NODES)
            ]
            node = some_services(home, peers=peers)
            worker = RecordingWorker(records)
            node = replace(node, inference=replace(node.inference, worker=worker))
            timeline.serve_timeline(node)
            nodes.append(node)
        times = []
        async with serving(nodes[0]) as url, aiohttp.ClientSession(url) as client:
            for _ in range(10):
                began = time.perf_counter()
                async with client.get("/v1/cluster/timeline") as answer:
                    body = await answer.json()
                times.append(time.perf_counter() - began)
        for node in nodes[1:]:
            node.monitor.close()
        if len(body["timeline"]) != RUNNERS * ENTRIES:
            raise RuntimeError("the timeline is not whole")
    detail = f"{RUNNERS} × {ENTRIES} entries over {NODES} nodes, HTTP, one process, no network"
    return Figure("timeline", min(times) * 1000, 150, "less", "ms", detail)


def _event_log() -> list[Figure]:
    from skulkd.observe.event_disk import MIB, DiskLimits, EventDisk
    from skulkd.observe.event_writer import EventWriter
    from skulkd.wire.events import TaskAcknowledged
    from skulkd.wire.ids import TaskId

    event = TaskAcknowledged(task_id=TaskId("0" * 36))
    with tempfile.TemporaryDirectory() as place:
        limits = DiskLimits(ring_bytes=SMALL_RING_MIB * MIB, floor_bytes=0)
        writer = EventWriter(EventDisk(Path(place), limits), queue_events=APPENDS)
        writer.start()
        began = time.perf_counter()
        for index in range(APPENDS):
            writer.take(index, event)
        writer.flush(600)
        took = time.perf_counter() - began
        used = sum(file.stat().st_size for file in Path(place).iterdir())
        written = writer.status.written
        writer.stop(60)
    return [
        Figure("event log", written / took, 20_000, "more", "/s", f"{written} appends on disk"),
        Figure("event log size", used / MIB, SMALL_RING_MIB, "less", "MiB",
               f"after {APPENDS} appends into a ring of {SMALL_RING_MIB} MiB"),
    ]  # fmt: skip


def _decode_cost() -> list[Figure]:
    """What being observed takes from decoding: the median of paired rounds."""
    from skulkd.store.imports.tiny_model import make_tiny_model

    figures = []
    with tempfile.TemporaryDirectory() as place:
        models = {"tiny": make_tiny_model(Path(place))}
        demo = Path(sys.prefix) / "demo-models" / "skulk--SmolLM2-135M-Instruct"
        if (demo / "card.toml").exists():
            models["SmolLM2"] = demo
        for name, directory in models.items():
            tokens, rounds, together = DECODED[name]
            for clients in together:
                taken = _observed(directory, tokens, rounds, clients)
                figures += [
                    _cost(f"{name}, {clients} at once: decoding {way}", way, taken, tokens)
                    for way in DECODE_BOUNDS
                ]
    return figures


Rounds = dict[str, list[tuple[float, float]]]


def _observed(directory: Path, tokens: int, rounds: int, clients: int) -> Rounds:
    """Rounds of one process that decodes with and without being observed."""
    command = [sys.executable, "-m", "bench.observed_decode", str(directory)]
    done = subprocess.run(
        [*command, *map(str, (tokens, rounds, clients))],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    taken: Rounds = json.loads(done.stdout)
    return taken


def _cost(name: str, way: str, taken: Rounds, tokens: int) -> Figure:
    pairs = list(zip(taken[way], taken["unobserved"], strict=True))
    walls = [one[0] / other[0] for one, other in pairs]
    wall = statistics.median(walls)
    low, high = likely_medians(walls)
    cpu = statistics.median(one[1] / other[1] for one, other in pairs)
    step_ms = 1000 * statistics.median(other[0] for _, other in pairs)
    return Figure(
        name, 100 * (wall - 1), DECODE_BOUNDS[way], "less", "% more time",
        f"{100 * (low - 1):.1f} to {100 * (high - 1):.1f} % by {len(pairs)} pairs of {tokens} "
        f"tokens, {step_ms:.2f} ms a step; CPU {100 * (cpu - 1):.2f} %",
    )  # fmt: skip
