"""Options of the worker from the settings of the node."""

from skulkd.machine.mlx_build import mlx_build
from skulkd.runner.protocol import RunnerOptions
from skulkd.wire.config import RuntimeSection
from skulkd.worker.options import WorkerOptions

_MIB = 1024**2


def worker_options(runtime: RuntimeSection) -> WorkerOptions:
    runner = RunnerOptions(
        max_concurrent=runtime.max_concurrent_requests,
        prefix_cache_bytes=runtime.prefix_cache_mib * _MIB,
        default_max_tokens=runtime.max_output_tokens,
        cores=runtime.cores,
        blas=runtime.blas,
        warmup_deadline_s=runtime.warmup_deadline_seconds,
        connect_deadline_s=runtime.group_connect_deadline_seconds,
    )
    return WorkerOptions(
        runner=runner,
        queue_limit=runtime.queue,
        dequantize=runtime.dequantize if mlx_build() == "cpu" else "off",
        cuda=mlx_build() == "cuda",
    )
