"""What a runner computes with, for the flight recorder, the diagnostics and `skulkctl doctor`."""

import time
from collections.abc import Callable

import mlx.core as mx

from skulkd.runner.blas_binding import BlasInUse
from skulkd.runner.load import LoadedModel
from skulkd.wire.timeline import RunnerCompute

_SIDE = 384
_ROUNDS = 3


def compute_report(blas: BlasInUse, loaded: LoadedModel, *, float32: bool) -> RunnerCompute:
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
