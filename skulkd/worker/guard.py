"""The last look at the memory before a model is loaded: the plan may be older than the facts.

Pure but for `wait_for_room`, which gives memory that is being freed time to come back.
"""

import asyncio
import time
from collections.abc import Callable
from fractions import Fraction

from skulkd.placement.memory import Need, need_of, usable_bytes
from skulkd.wire.machine import MemoryUsage
from skulkd.wire.runners import MEMORY_GUARD
from skulkd.wire.shards import ShardMetadata, TensorShardMetadata

# Readings are not exact and needs are estimates; only a clear shortage is one.
TOLERANCE = Fraction(110, 100)
_LOOK_EVERY_S = 0.5
_GIB = 1024**3


def part_of(shard: ShardMetadata) -> Fraction:
    """The share of the model's weights that this shard holds."""
    if isinstance(shard, TensorShardMetadata):
        return Fraction(1, shard.world_size)
    return Fraction(shard.end_layer - shard.start_layer, max(1, shard.n_layers))


def shortage(shard: ShardMetadata, memory: MemoryUsage) -> str | None:
    """The arithmetic when the shard does not fit; None when it does."""
    need, usable = need_of(shard.model_card, part_of(shard)), usable_bytes(memory)
    if need.total_bytes <= usable * TOLERANCE:
        return None
    return f"{MEMORY_GUARD}: {_arithmetic(shard, need, usable, memory)}"


def _arithmetic(shard: ShardMetadata, need: Need, usable: int, memory: MemoryUsage) -> str:
    return (
        f"{shard.model_card.model_id} needs {_gib(need.total_bytes)} here"
        f" ({_gib(need.weights_bytes)} weights + {_gib(need.kv_bytes)} KV"
        f" + {_gib(need.overhead_bytes + need.floor_bytes)} headroom),"
        f" usable are {_gib(usable)}"
        f" ({_gib(memory.ram_available.in_bytes)} of {_gib(memory.ram_total.in_bytes)} RAM"
        " are available; the tolerance is 10 %)"
    )


async def wait_for_room(
    shard: ShardMetadata, read: Callable[[], MemoryUsage], limit_s: float
) -> str | None:
    """The shortage that is still there after `limit_s`; None as soon as there is room."""
    ends = time.monotonic() + limit_s
    while True:
        short = shortage(shard, await asyncio.to_thread(read))
        if short is None or time.monotonic() >= ends:
            return short
        await asyncio.sleep(_LOOK_EVERY_S)


def _gib(in_bytes: int) -> str:
    return f"{in_bytes / _GIB:.2f} GiB"
