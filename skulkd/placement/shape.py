"""What the files of a model say of its inside, beyond its card. Pure.

A card is a closed contract and has neither the size of a head nor the width of a layer. Both
decide whether a tensor placement is right: a width that does not divide gives wrong tokens
without any error, so the planner must refuse it before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from skulkd.wire.cards import ModelCard


@dataclass(frozen=True, slots=True)
class ModelShape:
    """None where the files do not say, or nobody has looked at them."""

    heads: int | None = None
    kv_heads: int | None = None
    head_dimension: int | None = None
    intermediate: int | None = None
    quantization_group: int | None = None


UNKNOWN_SHAPE = ModelShape()
_FLOAT32_BITS = 32
_TYPE_BITS = {"float32": 32, "bfloat16": 16, "float16": 16}
_USUAL_GROUP = 64


def shape_from_config(config: Mapping[str, Any]) -> ModelShape:
    """The shape in a `config.json`; values of a `text_config` win over the top level."""
    inner = config.get("text_config")
    text = {**config, **inner} if isinstance(inner, Mapping) else dict(config)
    heads = _positive(text, "num_attention_heads", "n_head")
    hidden = _positive(text, "hidden_size", "n_embd")
    dimension = _positive(text, "head_dim")
    if (
        dimension is None
        and heads
        and hidden
        and hidden % heads == 0
        and "kv_lora_rank" not in text
    ):
        dimension = hidden // heads
    section = text.get("quantization") or text.get("quantization_config")
    group = _positive(section, "group_size") if isinstance(section, Mapping) else None
    return ModelShape(
        heads=heads,
        kv_heads=_positive(text, "num_key_value_heads") or heads,
        head_dimension=dimension,
        intermediate=_positive(text, "intermediate_size"),
        quantization_group=group,
    )


def float32_growth(config: Mapping[str, Any]) -> Fraction | None:
    """How many times larger the weights are as float32; None when `config.json` does not say."""
    inner = config.get("text_config")
    text = {**config, **inner} if isinstance(inner, Mapping) else dict(config)
    section = text.get("quantization") or text.get("quantization_config")
    if isinstance(section, Mapping):
        bits = _positive(section, "bits")
        # Every group has a scale and a bias of 16 bits each.
        group = _positive(section, "group_size") or _USUAL_GROUP
        return None if bits is None else Fraction(_FLOAT32_BITS) / (bits + Fraction(32, group))
    stored = _TYPE_BITS.get(str(text.get("dtype") or text.get("torch_dtype")))
    return None if stored is None else Fraction(_FLOAT32_BITS, stored)


def tensor_obstacles(card: ModelCard, shape: ModelShape, ranks: int) -> list[str]:
    """Why this model cannot be cut into so many slices; empty when it can."""
    kv_heads = shape.kv_heads or card.num_key_value_heads
    counts = [
        ("hidden size", card.hidden_size),
        ("attention heads", shape.heads),
        ("key-value heads", kv_heads),
        ("intermediate size", shape.intermediate),
    ]
    found = [f"{name} {count}" for name, count in counts if count and count % ranks]
    if not found and shape.quantization_group:
        found = list(_cut_groups(shape, ranks, shape.quantization_group))
    return found


def _cut_groups(shape: ModelShape, ranks: int, group: int) -> list[str]:
    """Inputs of row-parallel layers whose slice would cut a quantisation group in two."""
    attention = (shape.heads or 0) * (shape.head_dimension or 0)
    widths = [("attention width", attention), ("intermediate size", shape.intermediate or 0)]
    return [
        f"{name} {width} in groups of {group}"
        for name, width in widths
        if width and (width // ranks) % group
    ]


def _positive(section: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = section.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
