"""Small GGUF files written with the `gguf` package, whole or wrong in one way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import quantize
from tokenizers.pre_tokenizers import ByteLevel

Type = GGMLQuantizationType
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BYTES = sorted(ByteLevel.alphabet())
MERGES = ["h e", "l l", "he ll", "hell o"]
TOKENS = [*SPECIAL, *BYTES, *(merge.replace(" ", "") for merge in MERGES)]


@dataclass
class Sample:
    """A model file in the making; tests change what they want to be wrong."""

    architecture: str = "llama"
    layers: int = 2
    hidden: int = 32
    heads: int = 2
    kv_heads: int = 1
    feed_forward: int = 64
    type: Type = Type.F32
    keys: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)

    empty: bool = False

    def __post_init__(self) -> None:
        name = self.architecture
        self.keys = {
            f"{name}.block_count": self.layers,
            f"{name}.context_length": 128,
            f"{name}.embedding_length": self.hidden,
            f"{name}.feed_forward_length": self.feed_forward,
            f"{name}.attention.head_count": self.heads,
            f"{name}.attention.head_count_kv": self.kv_heads,
            f"{name}.attention.layer_norm_rms_epsilon": 1e-5,
            f"{name}.rope.freq_base": 10_000.0,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": TOKENS,
            "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)),
            "tokenizer.ggml.merges": MERGES,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.chat_template": "{{ messages[0]['content'] }}",
        }
        random = np.random.default_rng(7)
        for tensor, shape in self.shapes().items():
            self.types[tensor] = self.type if len(shape) == 2 else Type.F32
            if self.empty:
                continue
            data = random.standard_normal(shape) * 0.2 if len(shape) == 2 else np.ones(shape)
            self.tensors[tensor] = data.astype(np.float32)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        hidden, inner = self.hidden, self.feed_forward
        key = hidden // self.heads * self.kv_heads
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (len(TOKENS), hidden),
            "output_norm.weight": (hidden,),
        }
        for layer in range(self.layers):
            block = {
                "attn_norm.weight": (hidden,),
                "ffn_norm.weight": (hidden,),
                "attn_q.weight": (hidden, hidden),
                "attn_k.weight": (key, hidden),
                "attn_v.weight": (key, hidden),
                "attn_output.weight": (hidden, hidden),
                "ffn_gate.weight": (inner, hidden),
                "ffn_up.weight": (inner, hidden),
                "ffn_down.weight": (hidden, inner),
            }
            if self.architecture == "qwen2":
                block |= {"attn_q.bias": (hidden,), "attn_k.bias": (key,), "attn_v.bias": (key,)}
            if self.architecture == "qwen3":
                head = (hidden // self.heads,)
                block |= {"attn_q_norm.weight": head, "attn_k_norm.weight": head}
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
        return shapes

    def write_empty(self, path: Path) -> Path:
        """A file of the right length whose weights are zeros that take no place on the disk."""
        writer = GGUFWriter(path, self.architecture)
        for key, value in self.keys.items():
            _add(writer, key, value)
        length = 0
        for name, shape in self.shapes().items():
            dtype = np.dtype(np.float16 if self.types[name] is Type.F16 else np.float32)
            size = int(np.prod(shape)) * dtype.itemsize
            writer.add_tensor_info(name, shape, dtype, size)
            length += -(-size // 32) * 32
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        with path.open("ab") as file:
            file.truncate(-(-file.tell() // 32) * 32 + length)
        return path

    def write(self, path: Path) -> Path:
        writer = GGUFWriter(path, self.architecture)
        for key, value in self.keys.items():
            _add(writer, key, value)
        for name, data in self.tensors.items():
            kind = self.types[name]
            writer.add_tensor(name, _encode(data, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_array(key, value)


def _encode(data: np.ndarray[Any, Any], kind: Type) -> np.ndarray[Any, Any]:
    if kind is Type.F64:
        return data.astype(np.float64)
    if kind is Type.I32:
        return data.astype(np.int32)
    try:
        return quantize(data, kind)
    except NotImplementedError:
        # No encoder: any bytes are valid blocks. Small ones keep the half floats in them finite.
        block, size = GGML_QUANT_SIZES[kind]
        shape = (*data.shape[:-1], data.shape[-1] // block * size)
        return np.random.default_rng(3).integers(0, 32, shape, dtype=np.uint8)
