"""Readings of MLX for the flight recorder and diagnostics: memory, speed, BLAS, cores."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

import mlx.core as mx

from skulkd.runner.cpu.blas_binding import BlasInUse
from skulkd.runner.embedding.load import EmbeddingModel
from skulkd.runner.model.load import LoadedModel
from skulkd.runner.protocol import MlxMemoryReading
from skulkd.wire.base import format_offset
from skulkd.wire.timeline import RunnerCompute

_SIDE = 384
_ROUNDS = 3


def compute_report(
    blas: BlasInUse, loaded: LoadedModel | EmbeddingModel, *, float32: bool
) -> RunnerCompute:
    """Measures, unless there is an accelerator."""
    on_cpu = mx.default_device() == mx.cpu
    return RunnerCompute(
        blas=blas.name,
        gflops=round(measured_gflops(), 1) if on_cpu else None,
        cores=loaded.cores,
        layout=loaded.layout,
        unpacked=float32,
        problem=blas.problem,
    )


def measured_gflops(clock: Callable[[], float] = time.perf_counter) -> float:
    """Operations per second of a large product on one core, in billions."""
    side = mx.ones((_SIDE, _SIDE))
    mx.eval(side)
    best = 0.0
    for _ in range(_ROUNDS):
        started = clock()
        mx.eval(side @ side)
        best = max(best, 2 * _SIDE**3 / (clock() - started) / 1e9)
    return best


def read_memory() -> MlxMemoryReading:
    """Counters only: cheap, and safe while work is under way."""
    return MlxMemoryReading(
        at=format_offset(datetime.now(UTC)),
        active=mx.get_active_memory(),
        cache=mx.get_cache_memory(),
        peak=mx.get_peak_memory(),
        wired_limit=_wired_limit(),
    )


@cache
def _wired_limit() -> int | None:
    """What mlx-lm wires while it generates; known only where Metal is."""
    if not mx.metal.is_available():
        return None
    size = mx.device_info().get("max_recommended_working_set_size")
    return size if isinstance(size, int) else None
