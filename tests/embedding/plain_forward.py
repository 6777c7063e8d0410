"""BERT with mean pooling in numpy, one text at a time: the judge of the runner's numbers."""

from __future__ import annotations

import json
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

Array = npt.NDArray[np.float64]
_erf = np.vectorize(erf, otypes=[np.float64])


class PlainBert:
    """In float64, so that its own rounding does not count."""

    def __init__(self, directory: Path) -> None:
        self._config: dict[str, Any] = json.loads((directory / "config.json").read_text())
        self._weights = read_weights(directory / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def embed(self, text: str) -> Array:
        tokens = self._tokenizer.encode(text).ids
        pooled: Array = self._hidden(tokens).mean(axis=0)
        return pooled / np.linalg.norm(pooled)

    def _hidden(self, tokens: list[int]) -> Array:
        get = self._weights
        hidden = (
            get["embeddings.word_embeddings.weight"][tokens]
            + get["embeddings.position_embeddings.weight"][: len(tokens)]
            + get["embeddings.token_type_embeddings.weight"][0]
        )
        hidden = self._norm("embeddings.LayerNorm", hidden)
        for layer in range(self._config["num_hidden_layers"]):
            name = f"encoder.layer.{layer}"
            mixed = self._linear(f"{name}.attention.output.dense", self._attention(name, hidden))
            hidden = self._norm(f"{name}.attention.output.LayerNorm", mixed + hidden)
            inner = self._linear(f"{name}.intermediate.dense", hidden)
            inner = inner * 0.5 * (1 + _erf(inner / sqrt(2)))
            outer = self._linear(f"{name}.output.dense", inner)
            hidden = self._norm(f"{name}.output.LayerNorm", outer + hidden)
        return hidden

    def _attention(self, name: str, hidden: Array) -> Array:
        heads = self._config["num_attention_heads"]
        query, key, value = (
            self._linear(f"{name}.attention.self.{part}", hidden)
            .reshape(len(hidden), heads, -1)
            .transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / sqrt(query.shape[-1])
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        return (shares @ value).transpose(1, 0, 2).reshape(hidden.shape)

    def _linear(self, name: str, given: Array) -> Array:
        return given @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, name: str, given: Array) -> Array:
        centred = given - given.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self._config["layer_norm_eps"])
        return centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def read_weights(path: Path) -> dict[str, Array]:
    """The float32 tensors of a safetensors file, without a library."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    weights: dict[str, Array] = {}
    for name, about in header.items():
        if about.get("dtype") != "F32":
            continue
        begin, end = about["data_offsets"]
        flat = np.frombuffer(raw[8 + size + begin : 8 + size + end], dtype="<f4")
        weights[name] = flat.reshape(about["shape"]).astype(np.float64)
    return weights
