"""Serving, against mlx-lm's own loop and server as pip installs them: same model and prompts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.figures import Figure
from bench.sse_client import Run, ask_all
from scripts.live_daemon import LiveDaemon, live_daemon

CLIENTS = (1, 4, 8)
TOPICS = ("tea", "rain", "maps", "iron", "bees", "salt", "wool", "moss")
READY_DEADLINE_S = 180.0
IDLE_S = 20.0
SHORT_TOKENS = 12
LONG_TURN_WORDS = 450
PROMPT_WORDS = 80
PROMPT_ROUNDS = 3
PEER_MODEL = "default_model"
ENVIRONMENT = {"MLX_DISABLE_COMPILE": "1", "OPENBLAS_NUM_THREADS": "1"}


Batches = list[tuple[list[Run], float]]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to measure. `pairs` are rounds against the raw loop, `rounds` against the server,
    `firsts` rounds of short answers that only tell of first tokens."""

    name: str
    model: str
    max_tokens: int
    pairs: int
    rounds: int
    firsts: int = 0
    decode: float = 0.95
    """Least ratio to the raw loop; the others are to the server with the most clients."""
    tokens: float = 1.0
    first: float = 1.0


MODELS = (
    # Tokens take milliseconds here: a few rounds would only tell of the machine.
    Subject("tiny", "skulk/tiny-llama", 256, pairs=20, rounds=7, firsts=30),
    Subject(
        "SmolLM2", "skulk/SmolLM2-135M-Instruct", 96, pairs=3, rounds=3,
        decode=2.5, tokens=4.0, first=0.2,
    ),
)  # fmt: skip


def body(model: str, number: int, max_tokens: int) -> dict[str, object]:
    topic = TOPICS[number % len(TOPICS)]
    messages = [{"role": "user", "content": f"Tell me something about {topic}, number {number}."}]
    return {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0.0}


def run() -> list[Figure]:
    models = Path(sys.prefix) / "demo-models"
    env = {**ENVIRONMENT, "SKULK_MODELS_DIR": str(models)}
    figures: list[Figure] = []
    with live_daemon("bench", env=env) as daemon:
        for subject in MODELS:
            skulkctl(daemon, "model", "pull", "tiny" if subject.name == "tiny" else "demo")
            skulkctl(daemon, "place", subject.model, "--wait", "--timeout", "5m")
            directory = models / subject.model.replace("/", "--")
            idle = _idle_share(daemon.pid)
            with raw_loop(directory) as raw:
                figures += _against_raw(subject, daemon, raw)
                if subject.name != "tiny":
                    figures.append(_prompts(subject, daemon, raw))
            with peer_server(directory) as peer:
                figures += _measure(subject, daemon, idle, peer)
            instance = _state(daemon)["instances"]
            for instance_id in instance:
                skulkctl(daemon, "delete", instance_id, "--yes", "--wait")
    return figures


def _measure(subject: Subject, daemon: LiveDaemon, idle: float, peer_url: str) -> list[Figure]:
    ours: dict[int, Batches] = {n: [] for n in CLIENTS}
    peers: dict[int, Batches] = {n: [] for n in CLIENTS}
    cpu_s = 0.0
    for turn in range(subject.rounds):
        for clients in CLIENTS:
            numbers = _numbers(turn, clients)
            peers[clients].append(_all(peer_url, PEER_MODEL, numbers, subject.max_tokens))
            before = _cpu_s(daemon.pid)
            ours[clients].append(_all(daemon.url, subject.model, numbers, subject.max_tokens))
            cpu_s += _cpu_s(daemon.pid) - before if clients == max(CLIENTS) else 0.0
    figures = [_throughput(subject, n, ours[n], peers[n]) for n in CLIENTS]
    figures.append(_daemon_share(subject.name, ours[max(CLIENTS)], cpu_s, idle))
    for clients in CLIENTS:
        mine, theirs = ours[clients], peers[clients]
        if subject.firsts:
            mine, theirs = _short_answers(subject, clients, daemon.url, peer_url)
        figures.append(_first_tokens(subject, clients, mine, theirs))
    return [*figures, _second_turn(subject.name, subject.model, daemon)]


def _short_answers(
    subject: Subject, clients: int, url: str, peer_url: str
) -> tuple[Batches, Batches]:
    ours: Batches = []
    peers: Batches = []
    for turn in range(subject.firsts):
        numbers = _numbers(100 + turn, clients)
        peers.append(_all(peer_url, PEER_MODEL, numbers, SHORT_TOKENS))
        ours.append(_all(url, subject.model, numbers, SHORT_TOKENS))
    return ours, peers


def _against_raw(
    subject: Subject, daemon: LiveDaemon, raw: Callable[[dict[str, object]], Run]
) -> list[Figure]:
    raws: list[Run] = []
    ours: list[Run] = []
    for turn in range(subject.pairs):
        raws.append(raw(body(subject.model, 1000 + turn, subject.max_tokens)))
        ours += _all(daemon.url, subject.model, [2000 + turn], subject.max_tokens)[0]
    ratios = [mine.decode_rate / its.decode_rate for mine, its in zip(ours, raws, strict=True)]
    our_rate, raw_rate = (statistics.median(r.decode_rate for r in runs) for runs in (ours, raws))
    our_first, raw_first = (statistics.median(r.first_s for r in runs) for runs in (ours, raws))
    return [
        Figure(
            f"{subject.name}, 1 client: decode / raw loop", statistics.median(ratios),
            subject.decode, "more",
            detail=f"{our_rate:.1f} against {raw_rate:.1f} tokens/s, {subject.pairs} pairs",
        ),
        Figure(
            f"{subject.name}, 1 client: first token after the raw loop's",
            1000 * (our_first - raw_first), 25, "less", "ms",
        ),
    ]  # fmt: skip


def _prompts(
    subject: Subject, daemon: LiveDaemon, raw: Callable[[dict[str, object]], Run]
) -> Figure:
    """The time to the first token of a prompt that nobody has seen is the time to read it."""
    ratios: list[float] = []
    ours: list[float] = []
    for turn in range(PROMPT_ROUNDS):
        story = " ".join(f"word{turn * PROMPT_WORDS + at}" for at in range(PROMPT_WORDS))
        request = {**body(subject.model, 0, 2), "messages": [{"role": "user", "content": story}]}
        theirs_s = raw(request).first_s
        ours.append(asyncio.run(ask_all(daemon.url, [request]))[0][0].first_s)
        ratios.append(theirs_s / ours[-1])
    return Figure(
        f"{subject.name}: prompt tokens/s / raw loop", statistics.median(ratios), 12.0, "more",
        detail=f"{PROMPT_WORDS} words in {statistics.median(ours):.2f} s, {PROMPT_ROUNDS} pairs",
    )  # fmt: skip


def _throughput(subject: Subject, clients: int, ours: Batches, peers: Batches) -> Figure:
    mine, theirs = _aggregate(ours), _aggregate(peers)
    return Figure(
        f"{subject.name}, {clients} clients: tokens/s / `mlx_lm.server`", mine / theirs,
        subject.tokens if clients == max(CLIENTS) else 1.0, "more",
        detail=f"{mine:.1f} against {theirs:.1f}",
    )  # fmt: skip


def _first_tokens(subject: Subject, clients: int, ours: Batches, peers: Batches) -> Figure:
    mine, theirs = _median_first(ours), _median_first(peers)
    return Figure(
        f"{subject.name}, {clients} clients: first token / `mlx_lm.server`", mine / theirs,
        subject.first if clients == max(CLIENTS) else 1.0, "less",
        detail=f"p50 {mine * 1000:.0f} against {theirs * 1000:.0f} ms, {len(ours)} rounds",
    )  # fmt: skip


def _daemon_share(name: str, batches: Batches, cpu_s: float, idle: float) -> Figure:
    """All that it takes; the detail says how much of that an idle one takes in the same time."""
    tokens = sum(run.tokens for runs, _ in batches for run in runs)
    idle_s = idle * sum(took for _, took in batches)
    return Figure(
        f"{name}, 8 clients: daemon CPU per 100 tokens/s", 100 * cpu_s / (tokens / 100),
        10, "less", "% of a core",
        f"{cpu_s * 1000:.0f} ms for {tokens} tokens, {idle_s * 1000:.0f} ms of it as when idle",
    )  # fmt: skip


def _second_turn(name: str, model: str, daemon: LiveDaemon) -> Figure:
    """A conversation goes on: its history must not be read again."""
    story = " ".join(TOPICS[i % len(TOPICS)] for i in range(LONG_TURN_WORDS))
    history: list[dict[str, str]] = [{"role": "user", "content": story}]
    request: dict[str, object] = {"model": model, "max_tokens": 8, "temperature": 0.0}
    first = asyncio.run(ask_all(daemon.url, [{**request, "messages": history}]))[0][0]
    history += [
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "Go on."},
    ]
    second = asyncio.run(ask_all(daemon.url, [{**request, "messages": history}]))[0][0]
    return Figure(
        f"{name}: first token of the second turn / of the first", second.first_s / first.first_s,
        0.25, "less", detail=f"{second.first_s * 1000:.0f} against {first.first_s * 1000:.0f} ms",
    )  # fmt: skip


def _numbers(turn: int, clients: int) -> list[int]:
    """Different prompts in every round, and for every number of clients."""
    return [turn * 100 + clients * 10 + at for at in range(clients)]


def _all(url: str, model: str, numbers: list[int], max_tokens: int) -> tuple[list[Run], float]:
    return asyncio.run(ask_all(url, [body(model, number, max_tokens) for number in numbers]))


def _aggregate(batches: Batches) -> float:
    return statistics.median(sum(r.tokens for r in runs) / took for runs, took in batches)


def _median_first(batches: Batches) -> float:
    return statistics.median(r.first_s for runs, _ in batches for r in runs)


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _idle_share(pid: int) -> float:
    """What the daemon takes of a core with a model placed and nothing to do."""
    before, started = _cpu_s(pid), time.monotonic()
    time.sleep(IDLE_S)
    return (_cpu_s(pid) - before) / (time.monotonic() - started)


def _state(daemon: LiveDaemon) -> dict[str, dict[str, object]]:
    with urllib.request.urlopen(f"{daemon.url}/state") as answer:
        state: dict[str, dict[str, object]] = json.load(answer)
        return state


def skulkctl(daemon: LiveDaemon, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "skulkctl", *arguments], env=daemon.env, stdout=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"error: skulkctl {' '.join(arguments)} exited with {done.returncode}")


@contextmanager
def raw_loop(directory: Path) -> Iterator[Callable[[dict[str, object]], Run]]:
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.raw_generate", str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    stdin, stdout = child.stdin, child.stdout

    def ask(request: dict[str, object]) -> Run:
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        return Run(**json.loads(stdout.readline()))

    try:
        stdout.readline()
        yield ask
    finally:
        child.kill()
        child.wait()


@contextmanager
def peer_server(directory: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "mlx_lm", "server", "--model", str(directory), "--host",
         "127.0.0.1", "--port", str(port), "--log-level", "WARNING"],
        env={**os.environ, **ENVIRONMENT}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        ends = time.monotonic() + READY_DEADLINE_S
        while True:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > ends or server.poll() is not None:
                    raise SystemExit("error: mlx_lm.server did not start") from None
                time.sleep(0.2)
        yield url
    finally:
        server.kill()
        server.wait()
