"""What the files of a model say of its inside, beyond its card. Pure.

A card is a closed contract and has neither the size of a head nor the width of a layer. Both
decide whether a tensor placement is right: a width that does not divide gives wrong tokens
without any error, so the planner must refuse it before anything is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from skulkd.wire.cards import ModelCard


@dataclass(frozen=True, slots=True)
class ModelDimensions:
    """None where the files do not say, or nobody has looked at them."""

    heads: int | None = None
    kv_heads: int | None = None
    head_dimension: int | None = None
    intermediate: int | None = None
    quantization_group: int | None = None
    weight_bits: int | None = None
    """Of one weight as stored, without its share of scales and biases."""


UNKNOWN_SHAPE = ModelDimensions()
_FLOAT32_BITS = 32
_TYPE_BITS = {"float32": 32, "bfloat16": 16, "float16": 16}
# How cards label what is not quantised.
_LABEL_BITS = {"fp32": 32, "bf16": 16, "fp16": 16}
_QUANTISED_LABEL = re.compile(r"([1-9]\d?)bit")
_USUAL_GROUP = 64
# Every group has a scale and a bias of 16 bits each.
_GROUP_BITS = 32


def shape_from_config(config: Mapping[str, Any]) -> ModelDimensions:
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
    group, bits = None, _TYPE_BITS.get(str(text.get("dtype") or text.get("torch_dtype")))
    if isinstance(section, Mapping):
        bits = _positive(section, "bits")
        group = _positive(section, "group_size") or (_USUAL_GROUP if bits else None)
    return ModelDimensions(
        heads=heads,
        kv_heads=_positive(text, "num_key_value_heads") or heads,
        head_dimension=dimension,
        intermediate=_positive(text, "intermediate_size"),
        quantization_group=group,
        weight_bits=bits,
    )


def float32_growth(card: ModelCard, shape: ModelDimensions) -> Fraction | None:
    """How many times larger the weights are as float32; None when not at all, or nobody knows."""
    bits, group = shape.weight_bits, shape.quantization_group
    if bits is None:
        bits, group = _labelled(card.quantization)
    if bits is None or bits >= _FLOAT32_BITS or card.gguf_file is not None:
        return None
    return _FLOAT32_BITS / (bits + Fraction(_GROUP_BITS, group) if group else Fraction(bits))


def _labelled(label: str) -> tuple[int | None, int | None]:
    """Bits and group of a card's label, for a node that does not have the files."""
    if (quantised := _QUANTISED_LABEL.fullmatch(label)) is not None:
        return int(quantised[1]), _USUAL_GROUP
    return _LABEL_BITS.get(label), None


def tensor_obstacles(card: ModelCard, shape: ModelDimensions, ranks: int) -> list[str]:
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


def _cut_groups(shape: ModelDimensions, ranks: int, group: int) -> list[str]:
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
