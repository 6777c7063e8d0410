"""Cards and nodes with defaults, for the tests of this folder."""

from __future__ import annotations

from typing import Any

from skulkd.placement.planner import Candidate
from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.machine import MemoryUsage

GIB = 1024**3


def a_card(gib: float = 4.0, **changes: Any) -> ModelCard:
    fields: dict[str, Any] = {
        "model_id": ModelId("org/name"),
        "storage_size": Memory.of(int(gib * GIB)),
        "n_layers": 32,
        "hidden_size": 4096,
        "supports_tensor": True,
        "num_key_value_heads": 8,
        "tasks": ["TextGeneration"],
    }
    return ModelCard(**{**fields, **changes})


def memory_of(total_gib: float, free_gib: float | None = None) -> MemoryUsage:
    free = total_gib if free_gib is None else free_gib
    return MemoryUsage(
        ram_total=Memory.of(int(total_gib * GIB)),
        ram_available=Memory.of(int(free * GIB)),
        swap_total=Memory(),
        swap_available=Memory(),
    )


def a_node(name: str = "node-a", total_gib: float = 16, free_gib: float | None = None) -> Candidate:
    return Candidate(NodeId(name), memory_of(total_gib, free_gib))
