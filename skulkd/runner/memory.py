"""MLX memory readings for phase entries and statistics."""

from datetime import UTC, datetime
from functools import cache

import mlx.core as mx

from skulkd.runner.phase_frames import MemoryReading
from skulkd.wire.base import format_offset


def read_memory() -> MemoryReading:
    """Counters only: cheap, and safe while work is under way."""
    return MemoryReading(
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
