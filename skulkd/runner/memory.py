"""MLX memory readings for phase entries and statistics."""

from datetime import UTC, datetime

import mlx.core as mx

from skulkd.wire.base import Memory, format_offset
from skulkd.wire.diagnostics import MlxMemorySnapshot


def snapshot() -> MlxMemorySnapshot:
    """Counters only: cheap, and safe while work is under way."""
    return MlxMemorySnapshot(
        generated_at=format_offset(datetime.now(UTC)),
        active=Memory.of(mx.get_active_memory()),
        cache=Memory.of(mx.get_cache_memory()),
        peak=Memory.of(mx.get_peak_memory()),
        wired_limit=_wired_limit(),
        source="mlx.core",
    )


def _wired_limit() -> Memory | None:
    """What mlx-lm wires while it generates; known only where Metal is."""
    if not mx.metal.is_available():
        return None
    size = mx.device_info().get("max_recommended_working_set_size")
    return Memory.of(size) if isinstance(size, int) else None
