"""Weights in another order give the same answers, from one copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear

from skulkd.runner.cpu import panels
from skulkd.runner.cpu.panels import PanelEmbedding, PanelLinear, arrange, rearrange

DEEP, WIDE = 96, 320
INPUTS = {
    "one row": (1, 1, DEEP),
    "a prompt": (1, 9, DEEP),
    "a batch": (4, 1, DEEP),
    "prompts": (3, 7, DEEP),
    "flat": (5, DEEP),
}


class Model(Module):
    """An embedding, a matrix and perhaps a head, as in a language model."""

    def __init__(self, vocabulary: int, *, head: bool) -> None:
        super().__init__()
        self.embed = Embedding(vocabulary, 256)
        self.up = Linear(256, 512, bias=False)
        self.small = Linear(256, 16, bias=False)
        if head:
            self.head = Linear(256, vocabulary, bias=False)


@pytest.mark.parametrize("shape", list(INPUTS.values()), ids=list(INPUTS))
@pytest.mark.parametrize("width", [64, 160, WIDE, 50], ids=lambda width: f"{width} wide")
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: (Linear(DEEP, WIDE), "__call__"), id="with a bias"),
        pytest.param(lambda: (Linear(DEEP, WIDE, bias=False), "__call__"), id="without"),
        pytest.param(lambda: (Embedding(WIDE, DEEP), "as_linear"), id="tied"),
    ],
)
def test_a_matrix_in_panels_gives_the_same_numbers(
    make: Callable[[], tuple[Any, str]], width: int, shape: tuple[int, ...]
) -> None:
    module, call = make()
    given = mx.random.normal(shape)
    weight, expected = mx.array(module.weight), getattr(module, call)(given)
    mx.eval(weight, expected)
    rearrange(module, width)
    assert mx.allclose(getattr(module, call)(given), expected, atol=1e-5).item()
    assert mx.array_equal(module.weight, weight).item()
    assert "weight" not in module


@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (2, 5)])
def test_an_embedding_in_panels_finds_its_rows(shape: tuple[int, int]) -> None:
    module: Any = Embedding(WIDE + 3, DEEP)
    tokens = mx.random.randint(0, WIDE + 3, shape)
    expected = module(tokens)
    mx.eval(expected)
    rearrange(module, 64)
    assert mx.array_equal(module(tokens), expected).item()


def test_there_is_one_copy() -> None:
    module = Linear(1024, 1024, bias=False)
    mx.eval(module.parameters())
    mx.synchronize()
    before = mx.get_active_memory()
    rearrange(module, 64)
    assert mx.get_active_memory() - before < 1 << 20


def choose(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let this order be the fastest."""
    measured = {**dict.fromkeys(("rows", *panels.LAYOUTS), 1.0), name: 0.5}
    monkeypatch.setattr(panels, "_measured", lambda *_: measured)


@pytest.mark.parametrize(
    ("head", "embedding"),
    [pytest.param(False, PanelEmbedding, id="tied"), pytest.param(True, Embedding, id="own head")],
)
def test_what_computes_and_is_large_is_rearranged(
    monkeypatch: pytest.MonkeyPatch, head: bool, embedding: type
) -> None:
    choose(monkeypatch, "panels")
    model = Model(1024, head=head)
    assert arrange([model], cores=2) == "panels"
    assert type(model.embed) is embedding
    assert type(model.up) is PanelLinear
    assert model.up.panels.shape == (8, 256, 64)
    assert type(model.small) is Linear


def test_columns_are_a_panel_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, "columns")
    model = Model(1024, head=True)
    assert arrange([model], cores=2) == "columns"
    assert model.up.panels.shape == (2, 256, 256)


@pytest.mark.parametrize("others_s", [1.0, 0.95], ids=["slower", "hardly faster"])
def test_what_does_not_pay_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, others_s: float) -> None:
    others = dict.fromkeys(panels.LAYOUTS, others_s)
    monkeypatch.setattr(panels, "_measured", lambda *_: {"rows": 1.0, **others})
    model = Model(1024, head=False)
    assert arrange([model], cores=1) == "rows"
    assert type(model.up) is Linear


def test_other_types_and_small_models_stay_as_they_are() -> None:
    half = Model(1024, head=False)
    half.set_dtype(mx.bfloat16)
    for model in (half, Model(64, head=False).small):
        assert arrange([model], cores=1) == "rows"


def test_one_of_the_orders_is_chosen_by_measuring() -> None:
    model = Model(4096, head=False)
    mx.eval(model.parameters())
    given = mx.random.normal((1, 1, 256))
    expected = model.embed.as_linear(given)
    mx.eval(expected)
    assert arrange([model], cores=2) in ("rows", "columns", "panels")
    assert mx.allclose(model.embed.as_linear(given), expected, atol=1e-4).item()
