"""Which GGUF tensor becomes which weight, and its data in our form: dense or packed.

Must not know of metadata or tokenizers. The whole arithmetic is numpy: no MLX is needed here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from skulkd.settings.problems import printable
from skulkd.store.errors import BrokenModelError, UnsupportedModelError
from skulkd.store.imports.gguf_config import GgufModel
from skulkd.store.imports.gguf_file import GgufFile, GgufTensor
from skulkd.store.safetensors_file import TensorSpec

ROPE_FACTORS = "rope_freqs.weight"
GROUP_SIZE = 32

_Array = npt.NDArray[Any]
_Type = GGMLQuantizationType
# Types with one scale (and offset) per 32 values: exactly MLX's affine form of group size 32.
_PACKED_BITS = {_Type.Q4_0: 4, _Type.Q4_1: 4, _Type.Q8_0: 8}
# Whole numbers are no weights; the rest has no decoder in the gguf package.
_NOT_WEIGHTS = {
    _Type.I8, _Type.I16, _Type.I32, _Type.I64, _Type.F64, _Type.Q8_1, _Type.Q8_K, _Type.Q1_0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Weight:
    """One source tensor and what it becomes. `bits` is None for a dense weight."""

    name: str
    source: GgufTensor
    interleaved_heads: int | None
    bits: int | None
    dtype: str

    @property
    def module(self) -> str:
        return self.name.removesuffix(".weight")

    @property
    def specs(self) -> list[TensorSpec]:
        """What goes into the safetensors file, in order."""
        shape = self.source.shape
        if self.bits is None:
            return [TensorSpec(self.name, self.dtype, shape)]
        rows, columns = shape
        groups = (rows, columns // GROUP_SIZE)
        return [
            TensorSpec(self.name, "U32", (rows, columns * self.bits // 32)),
            TensorSpec(f"{self.module}.scales", "F16", groups),
            TensorSpec(f"{self.module}.biases", "F16", groups),
        ]


def plan_weights(file: GgufFile, shape: GgufModel, *, packed: bool) -> list[Weight]:
    """All weights of the model, each tensor checked for presence, shape and type.

    Raises BrokenModelError or UnsupportedModelError that names the tensor.
    """
    plan: list[Weight] = []
    wanted = dict(_expected(shape))
    for source_name, (name, expected_shape, heads) in wanted.items():
        tensor = file.tensors.get(source_name)
        if tensor is None:
            raise BrokenModelError(f"tensor {source_name} is missing")
        if tensor.shape != expected_shape:
            raise BrokenModelError(
                f"tensor {source_name} has the shape {tensor.shape}, not {expected_shape}"
            )
        if tensor.type in _NOT_WEIGHTS:
            raise UnsupportedModelError(
                f"tensor {source_name} has the quantisation type {tensor.type.name},"
                " which cannot be imported"
            )
        bits = _PACKED_BITS.get(tensor.type) if packed and len(tensor.shape) == 2 else None
        plan.append(Weight(name, tensor, heads, bits, "F16" if packed else "F32"))
    for source_name in file.tensors:
        if source_name not in wanted and source_name != ROPE_FACTORS:
            raise UnsupportedModelError(
                f"tensor {printable(source_name)} is not part of a"
                f" {shape.architecture.model_type} model"
            )
    return plan


def quantization_config(plan: list[Weight]) -> dict[str, Any] | None:
    """The `quantization` section of `config.json`; None when every weight is dense."""
    bits = [weight.bits for weight in plan if weight.bits is not None]
    if not bits:
        return None
    usual = max(set(bits), key=bits.count)
    section: dict[str, Any] = _affine(usual)
    for weight in plan:
        if weight.bits not in (None, usual):
            section[weight.module] = _affine(weight.bits)
    return section


def convert(weight: Weight, raw: bytes) -> list[_Array]:
    """The arrays of `weight.specs`, little-endian and in C order."""
    rows = _as_rows(weight.source, raw)
    if weight.interleaved_heads is not None:
        rows = _uninterleave(rows, weight.interleaved_heads)
    if weight.bits is not None:
        return _pack(rows, weight)
    # Damaged scales are found below; they need no warning.
    with np.errstate(all="ignore"):
        dense = dequantize(rows, weight.source.type).reshape(weight.source.shape)
        arrays = [np.ascontiguousarray(dense, dtype="<f4" if weight.dtype == "F32" else "<f2")]
    _require_finite(arrays, weight)
    return arrays


def read_factors(file: GgufFile) -> list[float] | None:
    """The rope factors of Llama 3 files, None when there are none."""
    tensor = file.tensors.get(ROPE_FACTORS)
    if tensor is None:
        return None
    if tensor.type is not _Type.F32 or len(tensor.shape) != 1:
        raise UnsupportedModelError(f"tensor {ROPE_FACTORS} is not a list of 32-bit floats")
    return [float(factor) for factor in np.frombuffer(file.read(tensor), dtype="<f4")]


def _expected(
    shape: GgufModel,
) -> Iterator[tuple[str, tuple[str, tuple[int, ...], int | None]]]:
    """GGUF name to our name, shape, and the number of interleaved heads."""
    hidden, vocabulary = shape.hidden, shape.vocabulary
    yield "token_embd.weight", ("model.embed_tokens.weight", (vocabulary, hidden), None)
    yield "output_norm.weight", ("model.norm.weight", (hidden,), None)
    if not shape.tied:
        yield "output.weight", ("lm_head.weight", (vocabulary, hidden), None)
    for layer in range(shape.layers):
        for source, (target, size, heads) in _layer(shape).items():
            yield f"blk.{layer}.{source}", (f"model.layers.{layer}.{target}", size, heads)


def _layer(shape: GgufModel) -> dict[str, tuple[str, tuple[int, ...], int | None]]:
    hidden, inner = shape.hidden, shape.feed_forward
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    mixed = shape.architecture.interleaved
    query_heads, key_heads = (shape.heads, shape.kv_heads) if mixed else (None, None)
    names: dict[str, tuple[str, tuple[int, ...], int | None]] = {
        "attn_norm.weight": ("input_layernorm.weight", (hidden,), None),
        "ffn_norm.weight": ("post_attention_layernorm.weight", (hidden,), None),
        "attn_q.weight": ("self_attn.q_proj.weight", (query, hidden), query_heads),
        "attn_k.weight": ("self_attn.k_proj.weight", (key, hidden), key_heads),
        "attn_v.weight": ("self_attn.v_proj.weight", (key, hidden), None),
        "attn_output.weight": ("self_attn.o_proj.weight", (hidden, query), None),
        "ffn_gate.weight": ("mlp.gate_proj.weight", (inner, hidden), None),
        "ffn_up.weight": ("mlp.up_proj.weight", (inner, hidden), None),
        "ffn_down.weight": ("mlp.down_proj.weight", (hidden, inner), None),
    }
    if shape.architecture.query_bias:
        for letter, size in (("q", query), ("k", key), ("v", key)):
            names[f"attn_{letter}.bias"] = (f"self_attn.{letter}_proj.bias", (size,), None)
    if shape.architecture.query_norm:
        for letter in "qk":
            target = f"self_attn.{letter}_norm.weight"
            names[f"attn_{letter}_norm.weight"] = (target, (shape.head_dim,), None)
    return names


def _affine(bits: int | None) -> dict[str, Any]:
    return {"group_size": GROUP_SIZE, "bits": bits, "mode": "affine"}


def _as_rows(tensor: GgufTensor, raw: bytes) -> _Array:
    """The raw blocks, one row of bytes for each row of the tensor."""
    block, block_bytes = GGML_QUANT_SIZES[tensor.type]
    row_bytes = tensor.shape[-1] // block * block_bytes
    return np.frombuffer(raw, dtype=np.uint8).reshape(-1, row_bytes)


def _uninterleave(rows: _Array, heads: int) -> _Array:
    """Put the two halves of each head's rotation back after each other."""
    size = rows.shape[0] // heads // 2
    pairs = rows.reshape(heads, size, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _pack(rows: _Array, weight: Weight) -> list[_Array]:
    """Blocks of 32 values as MLX packs them: value = scale * whole number + bias."""
    _, block_bytes = GGML_QUANT_SIZES[weight.source.type]
    blocks = rows.reshape(rows.shape[0], -1, block_bytes)
    scales = _halves(blocks[..., 0:2])
    with np.errstate(all="ignore"):
        if weight.source.type is _Type.Q8_0:
            # Signed bytes become unsigned ones with a bias.
            numbers, biases = blocks[..., 2:] ^ 0x80, scales * np.float16(-128)
        elif weight.source.type is _Type.Q4_0:
            numbers, biases = _nibbles_in_order(blocks[..., 2:]), scales * np.float16(-8)
        else:
            numbers, biases = _nibbles_in_order(blocks[..., 4:]), _halves(blocks[..., 2:4])
    _require_finite([scales, biases], weight)
    words = np.ascontiguousarray(numbers).reshape(rows.shape[0], -1).view("<u4")
    return [words, np.ascontiguousarray(scales), np.ascontiguousarray(biases)]


def _halves(pairs: _Array) -> _Array:
    return np.ascontiguousarray(pairs).view("<f2")[..., 0]


def _nibbles_in_order(packed: _Array) -> _Array:
    """GGUF pairs value i with value i + 16 in a byte; MLX pairs neighbours."""
    values = np.concatenate([packed & 0x0F, packed >> 4], axis=-1)
    return np.asarray(values[..., 0::2] | (values[..., 1::2] << 4))


def _require_finite(arrays: list[_Array], weight: Weight) -> None:
    if all(np.isfinite(array).all() for array in arrays):
        return
    if weight.dtype == "F32":
        raise BrokenModelError(f"tensor {weight.source.name} holds values that are not finite")
    raise UnsupportedModelError(
        f"tensor {weight.source.name} holds values beyond the range of 16-bit floats",
        hint="import it without --packed",
    )
