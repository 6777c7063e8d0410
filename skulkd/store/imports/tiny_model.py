"""A generated llama of a megabyte: random weights, real files. For tests and as a last resort.

It loads at once, splits over 2 to 4 ranks both ways, and says nothing sensible.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers.pre_tokenizers import ByteLevel

from skulkd.store.atomic_directory import build_model
from skulkd.store.cards.from_config import card_from_config
from skulkd.store.errors import StoreError
from skulkd.store.imports.tokenizer import SpecialTokens, SplitRule, Vocabulary, write_tokenizer
from skulkd.store.model_directory import (
    WEIGHTS_FILE,
    inspect_directory,
    write_card,
    write_index,
    write_json,
)
from skulkd.store.model_ids import directory_name
from skulkd.store.safetensors_file import SafetensorsWriter, TensorSpec

TINY_MODEL_ID = "skulk/tiny-llama"

_CONTEXT = 4096
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Large enough that the next token depends on the text and greedy answers do not loop.
_WEIGHT_SCALE = 1.05
_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Eight layers and four heads: even over 2 and 4 ranks, uneven over 3."""

    layers: int = 8
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 4
    feed_forward: int = 128
    vocabulary: int = 512
    seed: int = 0

    @property
    def specs(self) -> Iterator[TensorSpec]:
        """Every weight, as mlx-lm names it."""
        hidden, inner = self.hidden, self.feed_forward
        kv = hidden // self.heads * self.kv_heads
        yield TensorSpec("model.embed_tokens.weight", "F32", (self.vocabulary, hidden))
        yield TensorSpec("model.norm.weight", "F32", (hidden,))
        yield TensorSpec("lm_head.weight", "F32", (self.vocabulary, hidden))
        for layer in range(self.layers):
            for name, size in {
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
                "self_attn.q_proj": (hidden, hidden),
                "self_attn.k_proj": (kv, hidden),
                "self_attn.v_proj": (kv, hidden),
                "self_attn.o_proj": (hidden, hidden),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
            }.items():
                yield TensorSpec(f"model.layers.{layer}.{name}.weight", "F32", size)

    def to_config(self) -> dict[str, Any]:
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.feed_forward,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": _CONTEXT,
            "rope_theta": 10_000.0,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
        }


def make_tiny_model(
    models: Path, model_id: str = TINY_MODEL_ID, shape: TinyShape | None = None
) -> Path:
    """The directory of the tiny model, made now unless a whole one is there. Raises StoreError."""
    target = models / directory_name(model_id)
    if _is_whole(target):
        return target
    shape = shape or TinyShape()
    specs = list(shape.specs)
    size_bytes = sum(spec.size_bytes for spec in specs)
    with build_model(models, model_id, replace=True) as directory:
        random = np.random.default_rng(shape.seed)
        with SafetensorsWriter(directory / WEIGHTS_FILE, specs) as writer:
            for spec in specs:
                writer.write(_weights(spec, random).data.cast("B"))
        special = _write_tokenizer(directory, shape)
        config = shape.to_config() | special.generation_config()
        write_json(directory / "config.json", config)
        write_index(directory, {spec.name: WEIGHTS_FILE for spec in specs}, size_bytes)
        write_card(directory, card_from_config(model_id, config, size_bytes, _TEMPLATE))
    return target


def _is_whole(directory: Path) -> bool:
    try:
        inspect_directory(directory)
    except StoreError:
        return False
    return True


def _weights(spec: TensorSpec, random: np.random.Generator) -> npt.NDArray[Any]:
    if len(spec.shape) == 1:
        return np.ones(spec.shape, dtype="<f4")
    scale = _WEIGHT_SCALE / np.sqrt(spec.shape[-1])
    return np.asarray(random.standard_normal(spec.shape) * scale, dtype="<f4")


def _write_tokenizer(directory: Path, shape: TinyShape) -> SpecialTokens:
    """One token for each byte; fillers give every id of the vocabulary a text."""
    tokens = [*_SPECIAL, *sorted(ByteLevel.alphabet())]
    tokens += [f"<|filler{index}|>" for index in range(len(tokens), shape.vocabulary)]
    special = SpecialTokens(bos=1, eos=2, pad=0, unknown=0, add_bos=False, stop=[2])
    vocabulary = Vocabulary(tokens, [], range(len(_SPECIAL)))
    write_tokenizer(directory, vocabulary, SplitRule(), special, _TEMPLATE, _CONTEXT)
    return special
