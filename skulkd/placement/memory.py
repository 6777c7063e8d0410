"""How much memory a part of a model needs and how much a node may give it. Pure arithmetic.

Exact: fractions inside, whole bytes at the edges, needs rounded up.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from skulkd.wire.cards import ModelCard
from skulkd.wire.machine import MemoryUsage

# Buffers, activations and fragmentation on top of the weights themselves.
MLX_OVERHEAD = Fraction(130, 100)
GGUF_OVERHEAD = Fraction(110, 100)
FLOOR_BYTES = 256 * 1024**2
# What Metal recommends as working set; above it a machine begins to page.
WORKING_SET = Fraction(75, 100)
KV_BUDGET_TOKENS = 8192
GGUF_CONTEXT_TOKENS = 8192
# Cards do not say the size of a head; almost every model has this one, in half precision.
HEAD_DIMENSION = 128
KV_ELEMENT_BYTES = 2

WHOLE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Need:
    """What a share of a model takes on one node, in bytes, part by part."""

    weights_bytes: int
    overhead_bytes: int
    kv_bytes: int
    floor_bytes: int = FLOOR_BYTES

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.overhead_bytes + self.kv_bytes + self.floor_bytes


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a model that one node would hold, and the memory of that node."""

    part: Fraction
    memory: MemoryUsage


def overhead(card: ModelCard) -> Fraction:
    """Factor on the weights."""
    return MLX_OVERHEAD if card.gguf_file is None else GGUF_OVERHEAD


def kv_bytes_per_token(card: ModelCard) -> int | None:
    """Keys and values of one token in every layer; None when the card does not say."""
    if card.num_key_value_heads is None:
        return None
    return 2 * card.n_layers * card.num_key_value_heads * HEAD_DIMENSION * KV_ELEMENT_BYTES


def need_of(card: ModelCard, part: Fraction = WHOLE) -> Need:
    """What this part of the model needs, with room for a conversation of usual length."""
    weights = card.storage_size.in_bytes * part
    kv = (kv_bytes_per_token(card) or 0) * KV_BUDGET_TOKENS * part
    with_overhead = ceil(weights * overhead(card))
    return Need(
        weights_bytes=ceil(weights),
        overhead_bytes=with_overhead - ceil(weights),
        kv_bytes=ceil(kv),
    )


def working_set_bytes(memory: MemoryUsage) -> int:
    """The most that models may ever take on this node."""
    return int(memory.ram_total.in_bytes * WORKING_SET)


def usable_bytes(memory: MemoryUsage) -> int:
    """What a new model may take now."""
    return max(0, min(memory.ram_available.in_bytes, working_set_bytes(memory)))


def fits(need: Need, usable: int) -> bool:
    """An exact fit is none: the node would page instead of answer."""
    return need.total_bytes < usable


def context_token_limit(card: ModelCard, shares: Iterable[Share]) -> int | None:
    """Most tokens of prompt and answer that fit on every node beside the weights.

    None when neither the memory nor the card bounds it. Can be 0: then nothing can be asked.
    """
    bounds = [card.context_length] if card.context_length > 0 else []
    if card.gguf_file is not None:
        bounds.append(GGUF_CONTEXT_TOKENS)
    per_token = kv_bytes_per_token(card)
    if per_token is not None:
        bounds += [_tokens_beside_weights(card, per_token, share) for share in shares]
    return min(bounds, default=None)


def _tokens_beside_weights(card: ModelCard, per_token: int, share: Share) -> int:
    weights = card.storage_size.in_bytes * share.part * overhead(card)
    left = working_set_bytes(share.memory) - weights - FLOOR_BYTES
    return max(0, int(left / (per_token * share.part)))
