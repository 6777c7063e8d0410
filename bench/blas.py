"""What a fast BLAS is worth on a Linux CPU: prompt tokens per second with it and without."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path

from bench.figures import Figure
from bench.serve import skulkctl
from scripts.live_daemon import live_daemon

MODEL = "skulk/SmolLM2-135M-Instruct"
WORDS = 120


def run() -> list[Figure]:
    fast, slow = _prompt_rate("auto"), _prompt_rate("off")
    return [
        Figure(
            "SmolLM2: prompt tokens/s with `runtime.blas: auto` / `off`",
            fast / slow,
            5.0,
            "more",
            detail=f"{fast:.0f} against {slow:.0f} tokens/s",
        )
    ]


def _prompt_rate(blas: str) -> float:
    env = {"SKULK_MODELS_DIR": str(Path(sys.prefix) / "demo-models"), "MLX_DISABLE_COMPILE": "1"}
    with live_daemon("bench", env=env, config=f"runtime: {{blas: {blas}}}\n") as daemon:
        skulkctl(daemon, "model", "pull", "demo")
        skulkctl(daemon, "place", MODEL, "--wait", "--timeout", "5m")
        story = " ".join(f"word{number}" for number in range(WORDS))
        body = {"model": MODEL, "messages": [{"role": "user", "content": story}], "max_tokens": 2}
        request = urllib.request.Request(
            f"{daemon.url}/bench/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return float(json.load(answer)["generation_stats"]["prompt_tps"])
