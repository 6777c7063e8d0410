"""BERT's encoder in `mlx.nn`, with the names that its weight files have.

Only what sentence embeddings need: no pooler, no heads, one segment.
"""

# MLX leaves its modules untyped.
# mypy: allow-untyped-calls, disable-error-code="no-any-return"

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.nn.layers.activations import gelu, gelu_approx, relu
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import LayerNorm

from skulkd.runner.errors import BadModel

# Large enough to silence a padded position, small enough for float16.
_MASKED = -1e4
_ACTIVATIONS = {"gelu": gelu, "gelu_new": gelu_approx, "relu": relu}


@dataclass(frozen=True, slots=True)
class BertConfig:
    """The part of `config.json` that decides about shapes and arithmetic."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    hidden_act: str

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "BertConfig":
        """Raises BadModel that names the key."""
        defaults = {"type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
        values = {name: config.get(name, defaults.get(name)) for name in cls.__slots__}
        for name, value in values.items():
            kind = str if name == "hidden_act" else int | float
            if not isinstance(value, kind) or isinstance(value, bool):
                raise BadModel(f"config.json has no usable {name}")
        if values["hidden_act"] not in _ACTIVATIONS:
            raise BadModel(f"config.json: hidden_act {values['hidden_act']} is not supported")
        if config.get("position_embedding_type", "absolute") != "absolute":
            raise BadModel("config.json: only absolute positions are supported")
        return cls(**values)


class _Embeddings(Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.word_embeddings = Embedding(config.vocab_size, size)
        self.position_embeddings = Embedding(config.max_position_embeddings, size)
        self.token_type_embeddings = Embedding(config.type_vocab_size, size)
        self.LayerNorm = LayerNorm(size, eps=config.layer_norm_eps)

    def __call__(self, tokens: mx.array) -> mx.array:
        positions = self.position_embeddings(mx.arange(tokens.shape[1]))
        segment = self.token_type_embeddings(mx.zeros((1, 1), mx.int32))
        return self.LayerNorm(self.word_embeddings(tokens) + positions + segment)


class _SelfAttention(Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        size = config.hidden_size
        self.query = Linear(size, size)
        self.key = Linear(size, size)
        self.value = Linear(size, size)

    def __call__(self, hidden: mx.array, mask: mx.array) -> mx.array:
        rows, length, size = hidden.shape

        def split(projected: mx.array) -> mx.array:
            return projected.reshape(rows, length, self.heads, -1).transpose(0, 2, 1, 3)

        mixed = mx.fast.scaled_dot_product_attention(
            split(self.query(hidden)),
            split(self.key(hidden)),
            split(self.value(hidden)),
            scale=(size // self.heads) ** -0.5,
            mask=mask,
        )
        return mixed.transpose(0, 2, 1, 3).reshape(rows, length, size)


class _AddAndNorm(Module):
    """A projection whose result is added to what came before, then normalised."""

    def __init__(self, inputs: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(inputs, config.hidden_size)
        self.LayerNorm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def __call__(self, new: mx.array, before: mx.array) -> mx.array:
        return self.LayerNorm(self.dense(new) + before)


class _Attention(Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.self = _SelfAttention(config)
        self.output = _AddAndNorm(config.hidden_size, config)

    def __call__(self, hidden: mx.array, mask: mx.array) -> mx.array:
        return self.output(self.self(hidden, mask), hidden)


class _Intermediate(Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.intermediate_size)
        self.act = _ACTIVATIONS[config.hidden_act]

    def __call__(self, hidden: mx.array) -> mx.array:
        return self.act(self.dense(hidden))


class _Layer(Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = _Attention(config)
        self.intermediate = _Intermediate(config)
        self.output = _AddAndNorm(config.intermediate_size, config)

    def __call__(self, hidden: mx.array, mask: mx.array) -> mx.array:
        hidden = self.attention(hidden, mask)
        return self.output(self.intermediate(hidden), hidden)


class _Encoder(Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = [_Layer(config) for _ in range(config.num_hidden_layers)]


class Bert(Module):
    """Hidden states of padded rows; `mask` is 1 where a row has a token."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = _Embeddings(config)
        self.encoder = _Encoder(config)

    @property
    def layers(self) -> list[Any]:
        return self.encoder.layer

    def __call__(self, tokens: mx.array, mask: mx.array) -> mx.array:
        hidden = self.embeddings(tokens)
        added = ((1 - mask) * _MASKED).astype(hidden.dtype)[:, None, None, :]
        for layer in self.encoder.layer:
            hidden = layer(hidden, added)
        return hidden


def weights_of(stored: Mapping[str, mx.array]) -> dict[str, mx.array]:
    """The encoder's weights among those of a file, whose names may begin with `bert.`."""
    plain = {name.removeprefix("bert."): array for name, array in stored.items()}
    return {
        # The oldest files name the parts of a norm as TensorFlow does.
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        ): array.astype(mx.float32)
        for name, array in plain.items()
        if name.startswith(("embeddings.", "encoder.")) and name != "embeddings.position_ids"
    }
