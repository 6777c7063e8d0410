"""NVIDIA GPUs: what each measures, and which of them a node computes on.

Knows nothing of other vendors; how the driver is asked is in `nvml.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skulkd.machine.nvml import Nvml, NvmlError
from skulkd.wire.machine import AcceleratorMetrics

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a MIG slice of one; memory is null where the GPU shares the host's."""

    index: int
    """As `nvidia-smi` counts. All slices of a GPU have the index of that GPU."""
    uuid: str
    metrics: AcceleratorMetrics
    processes: tuple[tuple[int, int], ...] = ()
    """Process ids that compute on it, and the bytes each holds."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Every GPU that can be used, and why others cannot."""

    gpus: tuple[Gpu, ...] = ()
    problems: tuple[str, ...] = ()


def read_nvidia() -> Survey:
    """Look at every GPU; empty without a driver or a GPU.

    Raises NvmlError when the driver is broken, or no GPU that is there can be read.
    """
    nvml = Nvml.open()
    if nvml is None:
        return Survey()
    gpus: list[Gpu] = []
    failed: dict[int, NvmlError] = {}
    try:
        count = int(nvml.ask("DeviceGetCount"))
        for index in range(count):
            try:
                gpus += _read_gpu(nvml, index)
            except NvmlError as error:
                failed[index] = error
    except NvmlError:
        Nvml.close()
        raise
    if failed and not gpus:
        raise next(iter(failed.values()))
    return Survey(tuple(gpus), tuple(f"GPU {index}: {why}" for index, why in failed.items()))


def choose_gpu(found: Sequence[Gpu], visible: str | None) -> Gpu | None:
    """The GPU that MLX computes on; MLX uses one in each process.

    The first that CUDA_VISIBLE_DEVICES names, else the one with most memory. Numbers count as in
    `nvidia-smi`; CUDA's own order may differ, so runners get the UUID.
    """
    if visible is not None:
        named = visible.split(",")[0].strip()
        return next((gpu for gpu in found if _is_named(gpu, named)), None)
    return max(found, key=lambda gpu: gpu.metrics.vram_total_bytes or 0, default=None)


def _is_named(gpu: Gpu, named: str) -> bool:
    if named.isdecimal():
        return gpu.index == int(named)
    # CUDA accepts the beginning of a UUID.
    return len(named) > len("GPU-") and gpu.uuid.startswith(named)


def _read_gpu(nvml: Nvml, index: int) -> Iterator[Gpu]:
    handle = nvml.ask("DeviceGetHandleByIndex", index)
    mode = nvml.measure("DeviceGetMigMode", handle)
    if mode is None or not mode[0]:
        yield _read(nvml, index, handle)
        return
    # A GPU that is cut into slices cannot be used as a whole.
    for slot in range(nvml.ask("DeviceGetMaxMigDeviceCount", handle)):
        part = nvml.measure("DeviceGetMigDeviceHandleByIndex", handle, slot)
        if part is not None:
            yield _read(nvml, index, part)


def _read(nvml: Nvml, index: int, handle: object) -> Gpu:
    total, used = _memory(nvml, handle)
    rates = nvml.measure("DeviceGetUtilizationRates", handle)
    milliwatts = nvml.measure("DeviceGetPowerUsage", handle)
    celsius = nvml.measure("DeviceGetTemperature", handle, "NVML_TEMPERATURE_GPU")
    metrics = AcceleratorMetrics(
        vendor="nvidia",
        name=nvml.measure("DeviceGetName", handle) or "NVIDIA GPU",
        utilization_ratio=None if rates is None else min(rates.gpu / 100, 1.0),
        vram_total_bytes=total,
        vram_used_bytes=used,
        power_watts=None if milliwatts is None else milliwatts / 1000,
        temperature_celsius=None if celsius is None else float(celsius),
        clock_mhz=nvml.measure("DeviceGetClockInfo", handle, "NVML_CLOCK_SM"),
    )
    return Gpu(index, nvml.ask("DeviceGetUUID", handle), metrics, _processes(nvml, handle))


def _processes(nvml: Nvml, handle: object) -> tuple[tuple[int, int], ...]:
    found = nvml.measure("DeviceGetComputeRunningProcesses", handle) or ()
    return tuple((one.pid, one.usedGpuMemory) for one in found if one.usedGpuMemory is not None)


def _memory(nvml: Nvml, handle: object) -> tuple[int | None, int | None]:
    """Total and used; "not supported" means that the GPU has no memory of its own."""
    try:
        memory = nvml.ask("DeviceGetMemoryInfo", handle)
    except NvmlError as error:
        if error.unsupported:
            return None, None
        raise
    return memory.total, memory.total - memory.free
