"""`python -m tests.runner.stage_check NAME…`: models of other kinds, whole and cut into stages.

A process of its own, because MLX does not belong into the tests'. The stages hand their hidden
states over by a variable instead of a ring. Prints one JSON object: the largest difference of
logits by name and number of stages.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import mlx.core as mx

from skulkd.runner.model import sharding
from skulkd.runner.model.caches import fresh_caches, merged
from skulkd.runner.model.sharding import PipelinedModel

_BASE = {
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "vocab_size": 100,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
_EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 64,
    "norm_topk_prob": True,
}
_MIXED = ["sliding_attention", "full_attention"] * 4
_PARTICULAR: dict[str, dict[str, Any]] = {
    "llama": {"layer_types": _MIXED, "sliding_window": 8},
    "gemma3_text": {"sliding_window": 8, "sliding_window_pattern": 4, "query_pre_attn_scalar": 16},
    "gpt_oss": {**_EXPERTS, "sliding_window": 8, "rope_scaling": None, "layer_types": _MIXED},
    "qwen3_next": {
        **_EXPERTS,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "shared_expert_intermediate_size": 64,
        "full_attention_interval": 4,
        "partial_rotary_factor": 0.25,
    },
    "mamba2": {
        "num_heads": 8,
        "state_size": 16,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_limit": [0.0, 100.0],
        "time_step_rank": "auto",
        "layer_norm_epsilon": 1e-5,
        "expand": 2,
        "ssm_state_size": 16,
    },
    "qwen2": {},
}
_LENGTHS = (13, 1, 1, 5, 1)
_ROWS = 2
_passed: dict[int, mx.array] = {}


class _Rank:
    def __init__(self, number: int, size: int) -> None:
        self._number, self._size = number, size

    def rank(self) -> int:
        return self._number

    def size(self) -> int:
        return self._size


class _Distributed:
    @staticmethod
    def send(hidden: mx.array, to: int, group: Any) -> mx.array:
        _passed[to] = hidden
        return hidden

    @staticmethod
    def recv(shape: tuple[int, ...], dtype: mx.Dtype, source: int, group: Any) -> mx.array:
        hidden = _passed[source + 1]
        assert (hidden.shape, hidden.dtype) == (tuple(shape), dtype)
        return hidden


class _Mx:
    distributed = _Distributed

    def __getattr__(self, name: str) -> Any:
        return getattr(mx, name)


def _build(name: str) -> Any:
    module = importlib.import_module(f"mlx_lm.models.{name}")
    mx.random.seed(0)
    args = module.ModelArgs.from_dict({**_BASE, **_PARTICULAR[name], "model_type": name})
    model = module.Model(args)
    model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    return model


def difference(name: str, parts: int) -> float:
    """Prompts of unequal length, more tokens, and a window that slides meanwhile."""
    whole = _build(name)
    edges = [len(whole.layers) * part // parts for part in range(parts + 1)]
    stages = [
        PipelinedModel(_build(name), _Rank(rank, parts), edges[rank], edges[rank + 1])  # type: ignore[arg-type]
        for rank in range(parts)
    ]
    caches = merged([fresh_caches(whole) for _ in range(_ROWS)])
    staged = [merged([fresh_caches(stage) for _ in range(_ROWS)]) for stage in stages]
    everything = [*caches, *(cache for held in staged for cache in held)]
    worst = 0.0
    for turn, length in enumerate(_LENGTHS):
        tokens = mx.random.randint(0, 90, (_ROWS, length))
        for cache in everything if turn == 0 else []:
            cache.prepare(lengths=[13, 9], right_padding=[0, 4])
        expected = whole(tokens, cache=caches)
        for rank, stage in enumerate(stages):
            got = stage(tokens if rank == 0 else mx.zeros_like(tokens), staged[rank])
        mx.eval(expected, got)
        for cache in everything if turn == 0 else []:
            cache.finalize()
        rows = 1 if turn == 0 else _ROWS
        worst = max(worst, float(mx.abs(expected[:rows] - got[:rows]).max().item()))  # type: ignore[arg-type]
    return worst


def main() -> None:
    sharding.mx = _Mx()  # type: ignore[assignment]
    found = {f"{name}/{n}": difference(name, n) for name in sys.argv[1:] for n in (2, 3)}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
