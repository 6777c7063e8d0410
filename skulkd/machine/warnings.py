"""Warnings that follow from readings of this machine alone. Pure."""

from collections.abc import Iterator, Sequence
from math import ceil

from skulkd.machine.accelerator_nvidia import VISIBLE, Gpu, Survey
from skulkd.machine.mlx_build import MlxBuild
from skulkd.wire.base import Memory
from skulkd.wire.cluster import NodeWarning
from skulkd.wire.machine import MemoryUsage, MetalLimits
from skulkd.wire.rdma import NodeRdma

LEAKED_WIRED_BYTES = 5 * 1024**3
# What macOS and its own programs need, whatever the GPU may have.
RESERVED_BYTES = 4 * 1024**3
_GIB = 1024**3
_MIB = 1024**2


def leaked_wired_warning(wired: Memory | None, *, runner_alive: bool) -> str | None:
    """Say that wired memory stayed behind after its runner, or None.

    `wired` is None where the system does not report it (every system but macOS).
    """
    if wired is None or runner_alive or wired.in_bytes <= LEAKED_WIRED_BYTES:
        return None
    return (
        f"leaked wired memory: {wired.in_bytes / _GIB:.1f} GiB is wired although no runner is"
        " alive; it does not come back by itself, reboot this machine before placing a model"
    )


def gpu_warnings(
    build: MlxBuild,
    installed: Sequence[str],
    survey: Survey,
    chosen: Gpu | None,
    visible: str | None,
) -> list[str]:
    """Where the NVIDIA GPUs of a machine and its build of MLX do not fit together."""
    found = list(survey.problems)
    if len(installed) > 1:
        found.append(
            f"two builds of MLX overwrite each other's files ({', '.join(installed)}): uninstall"
            " both, then install skulk-toolkit[cuda] or skulk-toolkit[node]"
        )
    if build == "cuda":
        found += _cuda_warnings(survey, chosen, visible)
    elif chosen is not None:
        found.append(
            f"MLX computes on the CPU, {chosen.metrics.name} is not used: install"
            " skulk-toolkit[cuda] in a new environment"
        )
    return found


def _cuda_warnings(survey: Survey, chosen: Gpu | None, visible: str | None) -> list[str]:
    count = len(survey.gpus)
    if chosen is None and visible is not None and count:
        return [f"{VISIBLE}={visible} names none of the {count} GPUs: no model can be loaded here"]
    if chosen is None:
        return [
            "MLX is built for CUDA, but no NVIDIA GPU was found: no model can be loaded here;"
            " install the NVIDIA driver, or skulk-toolkit[node] to compute on the CPU"
        ]
    if count > 1 and visible is None:
        return [
            f"1 of {count} GPUs is used, {chosen.metrics.name} ({chosen.uuid}): a node computes"
            f" on one GPU; run one skulkd for each, with {VISIBLE} set"
        ]
    return []


def metal_warnings(
    metal: MetalLimits | None, memory: MemoryUsage | None, placed_bytes: int
) -> Iterator[NodeWarning]:
    """What a Mac's GPU lacks for the models that are placed there."""
    if metal is None:
        return
    limit = metal.wired_limit
    if limit is not None and memory is not None and placed_bytes > limit.in_bytes:
        yield _low_limit(limit, metal, memory.ram_total.in_bytes, placed_bytes)
    if metal.pressure == "critical":
        yield NodeWarning(
            message="memory pressure is critical: macOS compresses and swaps, models become slow",
            remediation="unload a model here, or close other programs",
        )


def bridge_warnings(rdma: NodeRdma | None) -> Iterator[NodeWarning]:
    """A bridge over ports that are meant for RDMA; whether it works is another question."""
    bridge = None if rdma is None or rdma.switch != "enabled" else rdma.bridge
    if bridge is not None and bridge.enabled:
        service = bridge.service_name or "Thunderbolt Bridge"
        yield NodeWarning(
            message=f"RDMA is enabled, but the network service {service} bridges the Thunderbolt"
            " ports, which then may lose the addresses that RDMA needs",
            remediation=f"sudo networksetup -setnetworkserviceenabled '{service}' off",
        )


def _low_limit(
    limit: Memory, metal: MetalLimits, total_bytes: int, placed_bytes: int
) -> NodeWarning:
    of_whom = "macOS's default" if metal.is_default else "set by iogpu.wired_limit_mb"
    message = (
        f"the GPU may wire {limit.in_bytes / _GIB:.1f} GiB ({of_whom}), but the models placed here"
        f" need {placed_bytes / _GIB:.1f} GiB"
    )
    if placed_bytes > total_bytes - RESERVED_BYTES:
        return NodeWarning(message=message, remediation="unload a model here: skulkctl delete")
    command = f"sudo sysctl iogpu.wired_limit_mb={ceil(placed_bytes / _MIB)}"
    return NodeWarning(message=message, remediation=f"{command} (until the next boot)")
