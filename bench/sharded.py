"""A pipeline of two ranks, against a bare script with the same split and against one rank.

A rank computes on one core here, which is its share of two.

Same model directory, prompts and BLAS everywhere, one machine. Contestants take turns and the
median counts, because a busy minute then hits all of them alike.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.figures import Figure
from bench.ranks import free_hosts, ranks
from bench.serve import ENVIRONMENT, TOPICS
from bench.sse_client import Run

MODELS = {"tiny": ("skulk--tiny-llama", 64, 7), "SmolLM2": ("skulk--SmolLM2-135M-Instruct", 12, 3)}
REQUESTS = 8
# The bare lanes hold equal rows and write no text, so they are what two ranks could do at most.
LANES = 0.75


def prompt(number: int) -> str:
    return f"Tell me something about {TOPICS[number % len(TOPICS)]}, number {number}."


def run() -> list[Figure]:
    figures: list[Figure] = []
    models = Path(sys.prefix) / "demo-models"
    environ = {**os.environ, **ENVIRONMENT}
    for name, (folder, max_tokens, rounds) in MODELS.items():
        directory = models / folder
        if not directory.is_dir():
            raise SystemExit(f"error: no {directory}; `python -m bench serve` fetches it")
        figures += _measure(name, directory, max_tokens, rounds, environ)
    return figures


def _measure(
    name: str, directory: Path, max_tokens: int, rounds: int, environ: dict[str, str]
) -> list[Figure]:
    """One contestant after the other within each round; the waiting ones use no processor."""
    bare_rates: list[float] = []
    pair_rates: list[float] = []
    one_totals: list[float] = []
    pair_totals: list[float] = []
    wide_totals: list[float] = []
    lane_rates: list[float] = []
    decode_rates: list[float] = []
    same = True
    with ExitStack() as stack:
        one = stack.enter_context(ranks(directory, 1, environ))
        pair = stack.enter_context(ranks(directory, 2, environ))
        wide = stack.enter_context(ranks(directory, 1, environ, cores=0))
        for turn in range(rounds):
            # The bare script's ranks spin while they wait, so it only lives for its turn.
            with bare(directory, environ) as ask:
                ask(prompt(0), 4)
                bare_rates.append(ask(prompt(turn), max_tokens).decode_rate)
                lanes = ask(prompt(turn), max_tokens, REQUESTS)
                lane_rates.append(lanes.tokens / (lanes.last_s - lanes.first_s))
            pair_rates.append(pair.ask([prompt(turn)], max_tokens)[0][0].decode_rate)
            texts = [prompt(turn * REQUESTS + number) for number in range(REQUESTS)]
            alone, alone_s = one.ask(texts, max_tokens)
            together, together_s = pair.ask(texts, max_tokens)
            spread, spread_s = wide.ask(texts, max_tokens)
            one_totals.append(sum(run.tokens for run in alone) / alone_s)
            pair_totals.append(sum(run.tokens for run in together) / together_s)
            wide_totals.append(sum(run.tokens for run in spread) / spread_s)
            decode_rates.append(sum(run.decode_rate for run in together))
            same = same and [r.text for r in alone] == [r.text for r in together]
    mine, theirs = statistics.median(pair_rates), statistics.median(bare_rates)
    both, single = statistics.median(pair_totals), statistics.median(one_totals)
    decoded, ceiling = statistics.median(decode_rates), statistics.median(lane_rates)
    return [
        Figure(
            f"{name}, 2 ranks, 1 request: decode / bare `mlx.distributed`", mine / theirs,
            0.95, "more",
            detail=f"{mine:.1f} against {theirs:.1f} tokens/s, median of {rounds}",
        ),
        Figure(
            f"{name}, {REQUESTS} requests: 2 ranks / 1 rank", both / single, 1.3, "more",
            detail=f"{both:.1f} against {single:.1f} tokens/s with prompts, median of {rounds}; "
            f"one rank on all cores {statistics.median(wide_totals):.1f}",
        ),
        Figure(
            f"{name}, {REQUESTS} requests: decode / bare `mlx.distributed`, equal rows in lanes",
            decoded / ceiling, LANES, "more",
            detail=f"{decoded:.1f} against {ceiling:.1f} tokens/s; the bare lanes are "
            f"{ceiling / single:.2f} × one rank",
        ),
        Figure(f"{name}: 2 ranks say greedily what 1 rank says", float(same), 1.0, "more", ""),
    ]  # fmt: skip


@contextmanager
def bare(directory: Path, environ: dict[str, str]) -> Iterator[Callable[..., Run]]:
    """The bare script on two ranks."""
    with tempfile.TemporaryDirectory() as folder:
        hostfile = Path(folder) / "hosts.json"
        hostfile.write_text(json.dumps([[f"{host.ip}:{host.port}"] for host in free_hosts(2)]))
        children = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.bare_pipeline", str(directory)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env={**environ, "MLX_RANK": str(rank), "MLX_HOSTFILE": str(hostfile)},
            )
            for rank in range(2)
        ]  # fmt: skip
        stdin, stdout = children[0].stdin, children[0].stdout
        assert stdin is not None
        assert stdout is not None

        def ask(text: str, max_tokens: int, rows: int = 0) -> Run:
            messages = [{"role": "user", "content": text}]
            request = {"messages": messages, "max_tokens": max_tokens, "rows": rows}
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            return Run(**json.loads(stdout.readline()))

        try:
            stdout.readline()
            yield ask
        finally:
            for child in children:
                child.kill()
                child.wait()
