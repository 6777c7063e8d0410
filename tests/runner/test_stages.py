"""Any kind of model can be cut into stages, or is refused with the reason."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.runner.runner_process import ROOT, runner_environ

KINDS = ("llama", "gemma3_text", "gpt_oss", "qwen3_next", "mamba2", "qwen2")


@pytest.fixture(scope="module")
def differences() -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.runner.stage_check", *KINDS],
        cwd=ROOT,
        env=runner_environ(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_stages_compute_what_the_whole_model_computes(
    differences: dict[str, float], kind: str, stages: int
) -> None:
    """Sliding windows, mixed and recurrent layers, experts: masks need layers of other ranks."""
    assert differences[f"{kind}/{stages}"] == pytest.approx(0.0, abs=1e-4)
