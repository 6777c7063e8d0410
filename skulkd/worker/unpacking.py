"""Whether a runner on a CPU unpacks its weights into float32. Reads `config.json` only."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Literal

from skulkd.placement.memory import KV_BUDGET_TOKENS, float32_need, usable_bytes
from skulkd.placement.promises import part_of
from skulkd.placement.records import shape_of
from skulkd.placement.shape import float32_growth
from skulkd.wire.ids import RunnerId
from skulkd.wire.instances import Instance
from skulkd.wire.machine import MemoryUsage

WHOLE = Fraction(1)


def unpacks(
    setting: Literal["auto", "on", "off"],
    growth: Fraction | None,
    instance: Instance,
    runner_id: RunnerId,
    memory: MemoryUsage,
) -> bool:
    """`auto` unpacks what fits into the free memory with the longest context that was promised."""
    if setting != "auto":
        return setting == "on"
    if growth is None or growth <= WHOLE:
        return False
    shard = instance.shard_assignments.runner_to_shard[runner_id]
    need = float32_need(
        shard.model_card,
        growth,
        part_of(shard),
        shape_of(instance),
        instance.context_token_limit or KV_BUDGET_TOKENS,
    )
    return need.total_bytes < usable_bytes(memory)


def growth_of(model_path: Path) -> Fraction | None:
    """From the model's own files; None when they do not say."""
    try:
        config = json.loads((model_path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # what is wrong with it is for the runner to say
    return float32_growth(config) if isinstance(config, dict) else None
