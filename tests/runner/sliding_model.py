"""A tiny Gemma 3: its caches forget what left the window, so they cannot be cut back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

_CONFIG = {
    "model_type": "gemma3_text",
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": 512,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "query_pre_attn_scalar": 16,
    "sliding_window": 32,
    "sliding_window_pattern": 4,
    "max_position_embeddings": 4096,
    "eos_token_id": 2,
}
_NORMS = ("input", "post_attention", "pre_feedforward", "post_feedforward")
_LAYER = {
    **{f"{name}_layernorm": (64,) for name in _NORMS},
    "self_attn.q_proj": (64, 64),
    "self_attn.k_proj": (16, 64),
    "self_attn.v_proj": (16, 64),
    "self_attn.o_proj": (64, 64),
    "self_attn.q_norm": (16,),
    "self_attn.k_norm": (16,),
    "mlp.gate_proj": (128, 64),
    "mlp.up_proj": (128, 64),
    "mlp.down_proj": (64, 128),
}


def make_sliding_model(tiny: Path, target: Path) -> Path:
    """Tokenizer, template and card of the tiny llama, with other weights."""
    shutil.copytree(tiny, target, ignore=shutil.ignore_patterns("model*"))
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (512, 64),
        "model.norm": (64,),
        "lm_head": (512, 64),
    }
    for layer in range(8):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in _LAYER.items()}
    random = np.random.default_rng(0)
    weights = {
        f"{name}.weight": random.standard_normal(shape).astype(np.float32) * 1.2 / shape[-1] ** 0.5
        for name, shape in shapes.items()
    }
    save_file(weights, target / "model.safetensors", metadata={"format": "mlx"})
    (target / "config.json").write_text(json.dumps(_CONFIG))
    return target
