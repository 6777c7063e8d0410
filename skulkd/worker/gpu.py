"""The NVIDIA GPU that runners of this node compute on, where MLX is built for CUDA.

MLX uses one GPU in each process, and all runners of a node use the same: the planner counts its
memory. Another GPU of the machine is another node, a daemon of its own.
"""

from collections.abc import Callable, Mapping

from skulkd.machine.accelerator_nvidia import VISIBLE, Gpu, choose_gpu, read_nvidia
from skulkd.machine.flight import Collector

_DEADLINE_S = 10.0


class GpuUnavailable(Exception):
    """There is no GPU to load a model on. `str()` says why."""


class RunnerGpu:
    """Reads the GPU of this node anew whenever it is asked, and never waits long for it."""

    def __init__(self, read: Callable[[], Gpu | None]) -> None:
        self._collector = Collector("GPU", read, deadline_s=_DEADLINE_S)

    async def read(self) -> Gpu:
        """Raises GpuUnavailable."""
        outcome = await self._collector.ask()
        gpu: Gpu | None = outcome.value
        if gpu is None:
            why = outcome.problem or "no NVIDIA GPU was found, and MLX is built for CUDA here"
            raise GpuUnavailable(why)
        return gpu


def gpu_reader(environ: Mapping[str, str]) -> Callable[[], Gpu | None]:
    """Blocking: finds the GPU that `CUDA_VISIBLE_DEVICES` names, else the largest."""
    return lambda: choose_gpu(read_nvidia().gpus, environ.get(VISIBLE))


def gpu_environ(gpu: Gpu | None) -> dict[str, str]:
    """Variables that keep a runner on this GPU, whatever order CUDA counts them in."""
    return {} if gpu is None else {VISIBLE: gpu.uuid}
