"""Packed and 16-bit weights become float32 where that was asked for."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import quantize

from skulkd.runner.cpu.widen import widen
from skulkd.runner.group.group import RankGroup, agreed_options
from skulkd.runner.model.load import ShardRange, load
from skulkd.runner.protocol import RunnerOptions
from skulkd.store.cards.toml import card_from_toml

TOKENS = mx.array([[1, 5, 63]])


class Model(Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = Embedding(64, 128)
        self.up = Linear(128, 96)

    def __call__(self, tokens: mx.array) -> tuple[mx.array, mx.array]:
        hidden = self.embed(tokens)
        return self.up(hidden), self.embed.as_linear(hidden)


@pytest.mark.parametrize(("bits", "mode"), [(4, "affine"), (8, "affine"), (4, "mxfp4")])
def test_what_is_unpacked_computes_the_same(bits: int, mode: str) -> None:
    model = Model()
    quantize(model, group_size=32, bits=bits, mode=mode)
    expected = model(TOKENS)
    mx.eval(expected)
    widen(model)
    assert (type(model.embed), type(model.up)) == (Embedding, Linear)
    assert {array.dtype for array in (model.embed.weight, model.up.weight)} == {mx.float32}
    for computed, before in zip(model(TOKENS), expected, strict=True):
        # A packed mxfp4 embedding computes in bfloat16.
        assert mx.allclose(computed, before, atol=2e-2).item()


def test_unpacked_weights_are_not_rounded_to_the_type_of_their_scales() -> None:
    model = Model()
    model.set_dtype(mx.bfloat16)
    quantize(model, group_size=32, bits=4)
    exact = mx.dequantize(
        model.up.weight,
        model.up.scales.astype(mx.float32),
        model.up.biases.astype(mx.float32),
        group_size=32,
        bits=4,
    )
    widen(model)
    assert mx.array_equal(model.up.weight, exact).item()


def test_half_precision_becomes_float32() -> None:
    model = Model()
    model.set_dtype(mx.bfloat16)
    widen(model)
    assert {array.dtype for array in model(TOKENS)} == {mx.float32}


def test_nothing_is_read_into_memory_before_it_is_needed() -> None:
    model = Model()
    quantize(model, group_size=32, bits=4)
    mx.eval(model.parameters())
    mx.synchronize()
    before = mx.get_active_memory()
    widen(model)
    assert mx.get_active_memory() - before < 1024


@pytest.mark.parametrize("float32", [False, True])
def test_a_model_is_loaded_as_it_was_asked_for(tiny: Path, float32: bool) -> None:
    card = card_from_toml((tiny / "card.toml").read_text(), "card.toml")
    part = ShardRange(RankGroup(), 0, card.n_layers)
    loaded = load(
        tiny, card, part=part, trust_remote_code=False, on_layer=lambda *_: None, float32=float32
    )
    logits = loaded.model(TOKENS)
    assert logits.dtype == mx.float32


def test_ranks_unpack_together_or_not_at_all() -> None:
    yes, no = RunnerOptions(float32=True, cores=2, blas="off"), RunnerOptions(max_concurrent=3)
    assert agreed_options(yes, [yes, yes]).float32
    agreed = agreed_options(yes, [no, yes])
    assert not agreed.float32
    assert (agreed.max_concurrent, agreed.cores, agreed.blas) == (3, 2, "off")
