"""A node whose MLX is built for CUDA: what it promises, which GPU its runners get, what it says.

The driver is a recording, and MLX is the CPU build that believes to be another: everything but
the GPU itself is real.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.daemon_process import ROOT
from tests.inference.served import Served, serve
from tests.nvml_library import build_nvml, nvml_environ
from tests.skulkctl_process import skulkctl

LARGER_GPU = "GPU-11111111-bbbb-4000-8000-000000000000"
FREE_BYTES, TOTAL_BYTES = 24674041856, 25757220864


@pytest.fixture(scope="module")
def cuda_environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a machine with two GPUs and the CUDA build."""
    base = tmp_path_factory.mktemp("cuda")
    about = base / "mlx_cuda_12-0.32.4.dist-info/METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: mlx-cuda-12\nVersion: 0.32.4\n")
    path = os.pathsep.join((str(ROOT), str(base)))
    return {**nvml_environ(build_nvml(base), "workstation"), "PYTHONPATH": path}


@pytest.fixture(scope="module")
def node(
    cuda_environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    one = serve(tmp_path_factory.mktemp("gpu-node"), cuda_environ)
    try:
        yield one
    finally:
        one.end()


def _skulkctl(node: Served, *arguments: str) -> str:
    home = node.daemon.home / "cli"
    home.mkdir(exist_ok=True)
    done = skulkctl(*arguments, home=home, endpoint=node.daemon.url)
    return done.out + done.err


def test_a_preview_counts_the_memory_of_the_gpu(node: Served) -> None:
    previews = node.get(f"/instance/previews?model_id={node.model}").json()["previews"]
    [need] = previews[0]["need_by_node"].values()
    assert need["pool"] == "vram"
    assert need["usable_bytes"] == min(FREE_BYTES, TOTAL_BYTES * 9 // 10)
    shown = _skulkctl(node, "preview", node.model)
    assert any(line.split()[-1:] == ["GPU"] for line in shown.splitlines()), shown


def test_doctor_says_which_gpu_is_used_and_how_to_use_the_other(node: Served) -> None:
    shown = " ".join(_skulkctl(node, "doctor").split())
    assert f"1 of 2 GPUs is used, NVIDIA GeForce RTX 4090 ({LARGER_GPU})" in shown
    assert "CUDA_VISIBLE_DEVICES" in shown


def test_a_runner_sees_only_the_gpu_that_was_counted_and_is_not_forked(node: Served) -> None:
    instance = node.place()
    try:
        runner = psutil.Process(node.runner_pid())
        assert runner.environ()["CUDA_VISIBLE_DEVICES"] == LARGER_GPU
        assert runner.ppid() == node.daemon.pid, "CUDA does not survive a fork"
        assert node.chat()["choices"][0]["message"]["content"]
    finally:
        node.delete(f"/instance/{instance}")


def test_a_gpu_that_is_gone_when_it_comes_to_loading_is_the_reason(
    cuda_environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "skulk.yaml").write_text("runtime: {blas: off}\n")
    hidden = serve(tmp_path, {**cuda_environ, "CUDA_VISIBLE_DEVICES": "7"})
    try:
        refused = hidden.post("/place_instance", {"model_id": hidden.model})
        assert refused.status_code == 400
        assert "GPU VRAM" in refused.json()["error"]["message"]
        shown = " ".join(_skulkctl(hidden, "doctor").split())
        assert "CUDA_VISIBLE_DEVICES=7 names none of the 2 GPUs" in shown
    finally:
        hidden.end()
