"""What model a GGUF file holds: its architecture and sizes, as an mlx-lm `config.json`. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from skulkd.settings.problems import printable
from skulkd.store.errors import BrokenModelError, UnsupportedModelError
from skulkd.store.imports.gguf_file import GgufFile, Value

MAX_LAYERS = 1024
_Wanted = TypeVar("_Wanted")


@dataclass(frozen=True, slots=True)
class Architecture:
    """How one GGUF architecture is called and stored."""

    model_type: str
    class_name: str
    # The converter of llama.cpp interleaves the rows of q and k of this architecture.
    interleaved: bool = False
    query_bias: bool = False
    query_norm: bool = False


ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", interleaved=True),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM", query_bias=True),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", query_norm=True),
}


@dataclass(frozen=True, slots=True)
class GgufModel:
    """The sizes that decide every tensor's shape, and the constants of the computation."""

    architecture: Architecture
    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    tied: bool
    norm_epsilon: float
    rope_theta: float
    rope_scaling: Mapping[str, float | str] | None

    def to_config(self) -> dict[str, Any]:
        """The parts of `config.json` that describe the network."""
        config: dict[str, Any] = {
            "architectures": [self.architecture.class_name],
            "model_type": self.architecture.model_type,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.feed_forward,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self.norm_epsilon,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.tied,
        }
        if self.rope_scaling is not None:
            config["rope_scaling"] = dict(self.rope_scaling)
        return config


def read_shape(file: GgufFile, rope_factors: Sequence[float] | None) -> GgufModel:
    """The shape of the model. `rope_factors` is the content of `rope_freqs.weight`, if any.

    Raises UnsupportedModelError for what we cannot run, BrokenModelError for missing keys.
    """
    metadata = file.metadata
    name = text_of(metadata, "general.architecture")
    architecture = ARCHITECTURES.get(name)
    if architecture is None:
        raise UnsupportedModelError(
            f'the architecture "{printable(name)}" cannot be imported',
            hint=f"supported architectures: {', '.join(sorted(ARCHITECTURES))}",
        )
    _refuse_special_forms(metadata, name)
    heads = _size(metadata, f"{name}.attention.head_count")
    hidden = _size(metadata, f"{name}.embedding_length")
    head_dim = _optional_size(metadata, f"{name}.attention.key_length") or hidden // heads
    theta = number_of(metadata, f"{name}.rope.freq_base", 10_000.0)
    shape = GgufModel(
        architecture=architecture,
        layers=_size(metadata, f"{name}.block_count"),
        hidden=hidden,
        feed_forward=_size(metadata, f"{name}.feed_forward_length"),
        heads=heads,
        kv_heads=_optional_size(metadata, f"{name}.attention.head_count_kv") or heads,
        head_dim=head_dim,
        vocabulary=_vocabulary(file),
        context=_size(metadata, f"{name}.context_length"),
        tied="output.weight" not in file.tensors,
        norm_epsilon=number_of(metadata, f"{name}.attention.layer_norm_rms_epsilon"),
        rope_theta=theta,
        rope_scaling=_rope_scaling(metadata, name, rope_factors, theta, head_dim),
    )
    _check_sizes(shape, metadata, name)
    return shape


def text_of(metadata: Mapping[str, Value], key: str) -> str:
    return _typed(metadata, key, str)


def number_of(metadata: Mapping[str, Value], key: str, default: float | None = None) -> float:
    """A finite number above zero, as the decimal that was meant: GGUF keeps 32-bit floats."""
    if default is not None and key not in metadata:
        return default
    number = _typed(metadata, key, float)
    if not (math.isfinite(number) and number > 0):
        raise BrokenModelError(f"key {key} is {number}")
    return float(f"{number:.7g}")


def _typed(metadata: Mapping[str, Value], key: str, wanted: type[_Wanted]) -> _Wanted:
    value = metadata.get(key)
    if value is None:
        raise BrokenModelError(f"key {key} is missing")
    if wanted is float and isinstance(value, int):
        value = float(value)
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise BrokenModelError(f"key {key} has a value of the wrong type")
    return value


def _size(metadata: Mapping[str, Value], key: str) -> int:
    if isinstance(metadata.get(key), list):
        raise UnsupportedModelError(f"key {key} differs from layer to layer")
    size = _typed(metadata, key, int)
    if size <= 0:
        raise BrokenModelError(f"key {key} is {size}")
    return size


def _optional_size(metadata: Mapping[str, Value], key: str) -> int | None:
    return _size(metadata, key) if key in metadata else None


def _vocabulary(file: GgufFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise BrokenModelError("tensor token_embd.weight is missing")
    return embedding.shape[0]


def _refuse_special_forms(metadata: Mapping[str, Value], name: str) -> None:
    if metadata.get(f"{name}.expert_count"):
        raise UnsupportedModelError("a mixture of experts cannot be imported")
    if metadata.get("split.count", 1) not in (0, 1):
        raise UnsupportedModelError(
            "the model is split into several GGUF files",
            hint="join them with gguf-split --merge first",
        )


def _check_sizes(shape: GgufModel, metadata: Mapping[str, Value], name: str) -> None:
    if shape.layers > MAX_LAYERS:
        raise BrokenModelError(f"key {name}.block_count is {shape.layers}")
    if shape.heads % shape.kv_heads or shape.head_dim % 2:
        raise BrokenModelError(
            f"{shape.heads} heads of {shape.head_dim} and {shape.kv_heads} key heads do not fit"
        )
    rotated = _optional_size(metadata, f"{name}.rope.dimension_count") or shape.head_dim
    value_dim = _optional_size(metadata, f"{name}.attention.value_length") or shape.head_dim
    if (rotated, value_dim) != (shape.head_dim, shape.head_dim):
        raise UnsupportedModelError(
            f"heads of {shape.head_dim} with {rotated} rotated dimensions and values of"
            f" {value_dim} cannot be imported"
        )
    fixed_head_dim = shape.architecture.model_type == "qwen2"
    if fixed_head_dim and shape.head_dim * shape.heads != shape.hidden:
        raise UnsupportedModelError("qwen2 with a head size of its own cannot be imported")


def _rope_scaling(
    metadata: Mapping[str, Value],
    name: str,
    factors: Sequence[float] | None,
    theta: float,
    head_dim: int,
) -> dict[str, float | str] | None:
    kind = metadata.get(f"{name}.rope.scaling.type", "none")
    if kind == "linear":
        factor = number_of(metadata, f"{name}.rope.scaling.factor")
        return {"rope_type": "linear", "factor": factor}
    if kind != "none":
        raise UnsupportedModelError(f"rope scaling of the type {kind} cannot be imported")
    return None if factors is None else _llama3_scaling(factors, theta, head_dim)


def _llama3_scaling(
    factors: Sequence[float], theta: float, head_dim: int
) -> dict[str, float | str]:
    """The parameters that produce these factors; GGUF keeps only the result.

    Every Llama 3 uses the same three constants, so the factor alone is to be found. The result is
    compared with the file: a model with other constants is refused.
    """
    scaling = {
        "factor": round(max(factors, default=0.0), 3),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    expected = llama3_factors(scaling, theta, head_dim)
    close = len(factors) == len(expected) and all(
        math.isclose(a, b, rel_tol=1e-3) for a, b in zip(factors, expected, strict=True)
    )
    if not close:
        raise UnsupportedModelError("rope_freqs.weight is not the scaling of Llama 3")
    return {"rope_type": "llama3", **scaling}


def llama3_factors(scaling: Mapping[str, float], theta: float, head_dim: int) -> list[float]:
    """By how much Llama 3 slows each rotation down."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    factors = []
    for index in range(0, head_dim, 2):
        wavelength = 2 * math.pi * theta ** (index / head_dim)
        turns = scaling["original_max_position_embeddings"] / wavelength
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return factors
