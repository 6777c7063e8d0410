"""Packed and 16-bit weights as float32, for a CPU.

MLX unpacks a quantised matrix anew for every row and computes 16-bit numbers without a BLAS; on a
CPU both are several times slower than float32, which costs memory instead. Experts of a mixture
stay packed: only a few of them work in a step.
"""

# MLX leaves its modules untyped.
# mypy: allow-untyped-calls

from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear

_PLAIN: dict[type[Module], type[Module]] = {
    QuantizedLinear: Linear,
    QuantizedEmbedding: Embedding,
}


def widen(model: Any) -> None:
    """Nothing is computed here: what is never read never takes memory."""
    for module in model.modules():
        plain = _PLAIN.get(type(module))
        if plain is not None:
            _unpack(module, plain)
    model.set_dtype(mx.float32)


def _unpack(module: Any, plain: type[Module]) -> None:
    biases = module.get("biases")
    module["weight"] = mx.dequantize(
        module["weight"],
        scales=_exact(module["scales"]),
        biases=None if biases is None else _exact(biases),
        group_size=module.group_size,
        bits=module.bits,
        mode=module.mode,
        dtype=mx.float32,
    )
    for name in ("scales", "biases"):
        module.pop(name, None)
    module.__class__ = plain


def _exact(values: mx.array) -> mx.array:
    """Weights get the type of their scales: in half precision each would be rounded."""
    return values.astype(mx.float32) if mx.issubdtype(values.dtype, mx.floating) else values
