"""A model cut into slices: each rank keeps a part of every layer.

mlx-lm does the cutting and does not check it; sizes that do not divide give wrong answers
without an error, so they are refused here.
"""

from typing import Any

import mlx.core as mx

from skulkd.runner.model_files import BadModel

_SIZES = (
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "linear_num_key_heads",
    "linear_num_value_heads",
)


def check_slices(config: dict[str, Any], ranks: int) -> None:
    """Raises BadModel when this many ranks cannot share the model evenly."""
    config = {**config, **(config.get("text_config") or {})}
    for name in _SIZES:
        size = config.get(name)
        if isinstance(size, int) and size > 0 and size % ranks:
            raise BadModel(f"{name} is {size}, which {ranks} ranks cannot share evenly")
    quantization = config.get("quantization")
    if isinstance(quantization, dict) and isinstance(quantization.get("group_size"), int):
        _check_groups(config, ranks, quantization["group_size"])


def _check_groups(config: dict[str, Any], ranks: int, group_size: int) -> None:
    """What a layer sums over is cut, too, and a quantisation group must stay whole."""
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    widths = {name: config.get(name) for name in ("intermediate_size", "moe_intermediate_size")}
    if isinstance(heads, int) and isinstance(hidden, int):
        widths["attention width"] = heads * (config.get("head_dim") or hidden // heads)
    for name, width in widths.items():
        if isinstance(width, int) and width > 0 and (width // ranks) % group_size:
            raise BadModel(
                f"{name} is {width}: a share of {ranks} ranks is no multiple of the "
                f"quantisation group of {group_size}"
            )


def cut_into_slices(model: Any, config: dict[str, Any], group: mx.distributed.Group) -> None:
    """Keep this rank's slice of every layer. Raises BadModel."""
    check_slices(config, group.size())
    if not hasattr(model, "shard"):
        kind = config.get("model_type")
        raise BadModel(f"model type {kind} cannot be shared by tensor; place it as a pipeline")
    model.shard(group)
