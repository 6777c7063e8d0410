"""How much memory a part of a model needs and how much a node may give it. Pure arithmetic.

Exact: fractions inside, whole bytes at the edges, needs rounded up.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from skulkd.placement.shape import UNKNOWN_SHAPE, ModelDimensions, float32_growth
from skulkd.wire.cards import ModelCard
from skulkd.wire.machine import AcceleratorMetrics, MemoryUsage

# Buffers, activations and fragmentation on top of the weights themselves.
MLX_OVERHEAD = Fraction(130, 100)
GGUF_OVERHEAD = Fraction(110, 100)
FLOOR_BYTES = 256 * 1024**2
# What Metal recommends as working set; above it a machine begins to page.
WORKING_SET = Fraction(75, 100)
# Of a graphics card's memory; the rest is the driver's.
VRAM_SET = Fraction(90, 100)
# What the system keeps when a processor with graphics maps main memory.
UNIFIED_HEADROOM_BYTES = 16 * 1024**3
KV_BUDGET_TOKENS = 8192
GGUF_CONTEXT_TOKENS = 8192
# Taken when nobody knows the model's own; almost every model has this one, in half precision.
HEAD_DIMENSION = 128
KV_ELEMENT_BYTES = 2
# Of unpacked weights keys and values are float32, too.
FLOAT32_KV = Fraction(4, KV_ELEMENT_BYTES)

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

    @property
    def parts(self) -> dict[str, int]:
        return {
            "weightsBytes": self.weights_bytes,
            "overheadBytes": self.overhead_bytes,
            "kvBytes": self.kv_bytes,
            "floorBytes": self.floor_bytes,
        }


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a model that one node would hold, and the most that models may take there."""

    part: Fraction
    ceiling_bytes: int


def overhead(card: ModelCard) -> Fraction:
    """Factor on the weights."""
    return MLX_OVERHEAD if card.gguf_file is None else GGUF_OVERHEAD


def embeds_only(card: ModelCard) -> bool:
    """Whether the model makes embeddings and generates nothing."""
    return "TextEmbedding" in card.tasks and "TextGeneration" not in card.tasks


def kv_bytes_per_token(card: ModelCard, shape: ModelDimensions = UNKNOWN_SHAPE) -> int | None:
    """Keys and values of one token in every layer; None when the card does not say.

    Also None for a model that makes embeddings: it keeps no keys and values.
    """
    heads = card.num_key_value_heads
    if heads is None or embeds_only(card):
        return None
    dimension = shape.head_dimension or HEAD_DIMENSION
    return 2 * card.n_layers * heads * dimension * KV_ELEMENT_BYTES


def need_of(
    card: ModelCard, part: Fraction = WHOLE, shape: ModelDimensions = UNKNOWN_SHAPE
) -> Need:
    """What this part of the model needs, with room for a conversation of usual length."""
    weights = card.storage_size.in_bytes * part
    kv = (kv_bytes_per_token(card, shape) or 0) * KV_BUDGET_TOKENS * part
    with_overhead = ceil(weights * overhead(card))
    return Need(
        weights_bytes=ceil(weights),
        overhead_bytes=with_overhead - ceil(weights),
        kv_bytes=ceil(kv),
    )


def float32_need(
    card: ModelCard,
    growth: Fraction,
    part: Fraction = WHOLE,
    shape: ModelDimensions = UNKNOWN_SHAPE,
    tokens: int = KV_BUDGET_TOKENS,
) -> Need:
    """What this part needs when its weights are unpacked, with keys and values of `tokens`."""
    weights = card.storage_size.in_bytes * part * growth
    with_overhead = ceil(weights * overhead(card))
    return Need(
        weights_bytes=ceil(weights),
        overhead_bytes=with_overhead - ceil(weights),
        kv_bytes=ceil((kv_bytes_per_token(card, shape) or 0) * tokens * part * FLOAT32_KV),
    )


def planned_need(
    card: ModelCard, part: Fraction, shape: ModelDimensions, *, unpacked: bool
) -> Need:
    """What a rank is promised; unpacked only where the card or the files tell how large that is."""
    growth = float32_growth(card, shape) if unpacked else None
    if growth is None:
        return need_of(card, part, shape)
    return float32_need(card, growth, part, shape)


def working_set_bytes(memory: MemoryUsage) -> int:
    """The most that models may ever take on this node."""
    return int(memory.ram_total.in_bytes * WORKING_SET)


def usable_bytes(memory: MemoryUsage) -> int:
    """What a new model may take now."""
    return max(0, min(memory.ram_available.in_bytes, working_set_bytes(memory)))


def vram_set_bytes(accelerator: AcceleratorMetrics) -> int:
    """The most that models may ever take of a graphics card's own memory."""
    return int((accelerator.vram_total_bytes or 0) * VRAM_SET)


def usable_vram_bytes(accelerator: AcceleratorMetrics, memory: MemoryUsage | None) -> int | None:
    """What a new model may take of a graphics card; None when there is none to count on."""
    total = accelerator.vram_total_bytes
    if accelerator.vendor not in ("amd", "nvidia") or not total:
        return None
    own = max(0, min(total - (accelerator.vram_used_bytes or 0), vram_set_bytes(accelerator)))
    mapped = accelerator.gtt_total_bytes or 0
    if memory is None or mapped <= total or mapped < memory.ram_total.in_bytes:
        return own
    spare = max(0, memory.ram_available.in_bytes - UNIFIED_HEADROOM_BYTES)
    return own + min(spare, mapped)


def context_token_limit(
    card: ModelCard,
    shares: Iterable[Share],
    shape: ModelDimensions = UNKNOWN_SHAPE,
    growth: Fraction | None = None,
) -> int | None:
    """Most tokens of prompt and answer that fit on every node beside the weights.

    None when neither the memory nor the card bounds it. Can be 0: then nothing can be asked.
    `growth` is that of weights unpacked to float32; None for weights as stored.
    """
    bounds = [card.context_length] if card.context_length > 0 else []
    if card.placement.max_context_tokens is not None:
        bounds.append(max(0, card.placement.max_context_tokens))
    if card.gguf_file is not None:
        bounds.append(GGUF_CONTEXT_TOKENS)
    per_token = kv_bytes_per_token(card, shape)
    if per_token is not None:
        bounds += [_tokens_beside_weights(card, per_token, share, growth) for share in shares]
    return min(bounds, default=None)


def _tokens_beside_weights(
    card: ModelCard, per_token: int, share: Share, growth: Fraction | None
) -> int:
    weights = card.storage_size.in_bytes * share.part * overhead(card) * (growth or WHOLE)
    left = share.ceiling_bytes - weights - FLOOR_BYTES
    wider = WHOLE if growth is None else FLOAT32_KV
    return max(0, int(left / (per_token * share.part * wider)))
