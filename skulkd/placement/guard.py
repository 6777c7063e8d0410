"""The last look before a model is loaded: is there still room on this node? Pure.

The planner looked at readings that were seconds old, and others may have taken memory since. A
tenth more than is usable is let pass, because a reading is only a reading.
"""

from __future__ import annotations

from fractions import Fraction

from skulkd.placement.memory import need_of, usable_bytes
from skulkd.placement.promises import part_of
from skulkd.placement.refusals import gb
from skulkd.placement.repairs import NO_ROOM
from skulkd.wire.machine import MemoryUsage
from skulkd.wire.shards import ShardMetadata

TOLERANCE = Fraction(110, 100)


def why_no_room(shard: ShardMetadata, memory: MemoryUsage) -> str | None:
    """None when the shard may be loaded; else a reason that makes the master place it wider."""
    need = need_of(shard.model_card, part_of(shard)).total_bytes
    usable = usable_bytes(memory)
    if need <= usable * TOLERANCE:
        return None
    return (
        f"{NO_ROOM}: this part of {shard.model_card.model_id} needs ~{gb(need)},"
        f" {gb(usable)} is usable now (10% more is let pass)"
    )
