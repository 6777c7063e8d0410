"""The accelerator this machine would compute on: Apple, NVIDIA, AMD, else the CPU.

Chooses between the vendors; how each is read is in the module of that vendor.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skulkd.machine.accelerator_amd import read_amd
from skulkd.machine.accelerator_apple import read_apple
from skulkd.machine.accelerator_nvidia import VISIBLE, Survey, choose_gpu, read_nvidia
from skulkd.machine.gpu_holders import held_by_others
from skulkd.machine.identity import UNKNOWN, this_hardware
from skulkd.machine.mlx_build import installed_builds, mlx_build
from skulkd.machine.nvml import NvmlError
from skulkd.machine.warnings import gpu_warnings
from skulkd.wire.machine import AcceleratorMetrics


@dataclass(frozen=True, slots=True)
class AcceleratorReading:
    """What computes here, and what an operator should know about it."""

    metrics: AcceleratorMetrics
    warnings: tuple[str, ...] = ()


def read_accelerator(
    root: Path = Path("/"),
    environ: Mapping[str, str] = os.environ,
    platform: str = sys.platform,
) -> AcceleratorReading:
    """Read the best accelerator of this machine; the CPU when there is no other.

    Raises NvmlError when the NVIDIA driver is broken and no other card is there: that is not
    "no GPU".
    """
    if platform == "darwin":
        return AcceleratorReading(choose(read_apple()) or _cpu(platform))
    visible = environ.get(VISIBLE)
    broken: NvmlError | None = None
    try:
        survey = read_nvidia()
    except NvmlError as error:
        survey, broken = Survey(), error
    gpu, build = choose_gpu(survey.gpus, visible), mlx_build()
    chosen = _one_of(gpu.metrics, len(survey.gpus)) if gpu else None
    if chosen is None and build != "cuda":
        chosen = choose(read_amd(root))
    if chosen is None and broken is not None:
        raise broken
    warnings = gpu_warnings(build, installed_builds(), survey, gpu, visible)
    if gpu is not None and build == "cuda":
        warnings += held_by_others(gpu)
    return AcceleratorReading(
        chosen or _cpu(platform), (*warnings, *([str(broken)] if broken else ()))
    )


def choose(found: Sequence[AcceleratorMetrics]) -> AcceleratorMetrics | None:
    """The one with most memory (the first of equals); its name tells that there are more.

    The wire has room for one. A sum would promise memory that no single device has.
    """
    return _one_of(max(found, key=reachable_bytes), len(found)) if found else None


def reachable_bytes(metrics: AcceleratorMetrics) -> int:
    """Memory the device can address: its own plus, on unified machines, the host's share."""
    return (metrics.vram_total_bytes or 0) + (metrics.gtt_total_bytes or 0)


def _one_of(metrics: AcceleratorMetrics, count: int) -> AcceleratorMetrics:
    if count == 1:
        return metrics
    return metrics.model_copy(update={"name": f"{metrics.name} (1 of {count})"})


def _cpu(platform: str) -> AcceleratorMetrics:
    return AcceleratorMetrics(vendor="cpu", name=this_hardware(platform).chip or UNKNOWN)
