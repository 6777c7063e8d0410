"""Checks the memory right before a model is loaded: the placement may be based on old readings.

Pure except for `wait_for_memory`, which waits for memory that is being freed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from fractions import Fraction

from skulkd.placement.memory import Need, usable_bytes, usable_vram_bytes
from skulkd.placement.promises import need_of_rank
from skulkd.wire.ids import ModelId, RunnerId
from skulkd.wire.instances import Instance
from skulkd.wire.machine import AcceleratorMetrics, MemoryUsage
from skulkd.wire.runners import MEMORY_GUARD

# Readings are not exact and needs are estimates; only a clear shortage counts.
TOLERANCE = Fraction(110, 100)
_POLL_S = 0.5
_GIB = 1024**3

# What a model is loaded into: the machine's memory, or that of its GPU.
MemoryPool = MemoryUsage | AcceleratorMetrics


def shortage(
    instance: Instance, runner_id: RunnerId, memory: MemoryPool, *, as_stored: bool = False
) -> str | None:
    """The arithmetic when the runner's shard does not fit; None when it fits.

    `as_stored`: count packed weights, even if unpacking was planned.
    """
    need, usable = need_of_rank(instance, runner_id, as_stored=as_stored), _usable(memory)
    if need.total_bytes <= usable * TOLERANCE:
        return None
    model_id = instance.shard_assignments.model_id
    return f"{MEMORY_GUARD}: {_arithmetic(model_id, need, usable, memory)}"


def _usable(memory: MemoryPool) -> int:
    if isinstance(memory, MemoryUsage):
        return usable_bytes(memory)
    return usable_vram_bytes(memory, None) or 0


def _reading(memory: MemoryPool) -> str:
    if isinstance(memory, MemoryUsage):
        free, total, name = memory.ram_available.in_bytes, memory.ram_total.in_bytes, "RAM"
    else:
        total, name = memory.vram_total_bytes or 0, f"the memory of {memory.name}"
        free = total - (memory.vram_used_bytes or 0)
    return f"{_gib(free)} of {_gib(total)} {name} are available"


def _arithmetic(model_id: ModelId, need: Need, usable: int, memory: MemoryPool) -> str:
    return (
        f"{model_id} needs {_gib(need.total_bytes)} here"
        f" ({_gib(need.weights_bytes)} weights + {_gib(need.kv_bytes)} KV"
        f" + {_gib(need.overhead_bytes + need.floor_bytes)} headroom),"
        f" usable are {_gib(usable)}"
        f" ({_reading(memory)}; the tolerance is 10 %)"
    )


async def wait_for_memory(
    instance: Instance,
    runner_id: RunnerId,
    read: Callable[[], Awaitable[MemoryPool]],
    limit_s: float,
    on_shortage: Callable[[str], None] = lambda shortage: None,
    *,
    as_stored: bool = False,
) -> str | None:
    """The shortage that remains after `limit_s`; None as soon as there is enough memory."""
    ends = time.monotonic() + limit_s
    while True:
        short = shortage(instance, runner_id, await read(), as_stored=as_stored)
        if short is None or time.monotonic() >= ends:
            return short
        on_shortage(short)
        await asyncio.sleep(_POLL_S)


def _gib(in_bytes: int) -> str:
    return f"{in_bytes / _GIB:.2f} GiB"
