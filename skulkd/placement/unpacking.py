"""Whether the weights of an instance are unpacked to float32, and the context it then has. Pure.

Ranks pass hidden states of one type to each other, so it is all of them or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from skulkd.placement.candidates import Budget
from skulkd.placement.memory import (
    KV_BUDGET_TOKENS,
    Share,
    context_token_limit,
    float32_need,
)
from skulkd.placement.shape import ModelDimensions, float32_growth
from skulkd.wire.cards import ModelCard
from skulkd.wire.placement import DequantizeMode


@dataclass(frozen=True, slots=True)
class Holder:
    """A rank to be: its part of the model, what its node may give, and the node's setting."""

    part: Fraction
    budget: Budget
    dequantize: DequantizeMode


@dataclass(frozen=True, slots=True)
class WeightsPlan:
    unpacked: bool
    context_tokens: int | None


def plan_weights(card: ModelCard, shape: ModelDimensions, holders: Sequence[Holder]) -> WeightsPlan:
    """Unpacked where all nodes allow it and have room for it.

    With `auto` the context must stay as long as it is without; where all say `on` it may become
    shorter.
    """
    shares = [Share(holder.part, holder.budget.ceiling_bytes) for holder in holders]
    packed = WeightsPlan(False, context_token_limit(card, shares, shape))
    settings = {holder.dequantize for holder in holders}
    growth = float32_growth(card, shape)
    if "off" in settings or growth is None:
        return packed
    if settings == {"on"}:
        tokens, context = 0, context_token_limit(card, shares, shape, growth)
    else:
        tokens, context = packed.context_tokens or 0, packed.context_tokens
    tokens = max(KV_BUDGET_TOKENS, tokens)
    fits = all(
        float32_need(card, growth, holder.part, shape, tokens).total_bytes
        < holder.budget.usable_bytes
        for holder in holders
    )
    return WeightsPlan(True, context) if fits else packed
