"""A loaded model finds its parts without detours, and is the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear

from skulkd.runner.group.group import RankGroup
from skulkd.runner.model.load import ShardRange, load, pin_submodules
from skulkd.store.cards.toml import card_from_toml


def test_a_step_of_a_loaded_model_looks_up_no_part_the_long_way(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = card_from_toml((tiny / "card.toml").read_text(), "card.toml")
    part = ShardRange(RankGroup(), 0, card.n_layers)
    model = load(tiny, card, part=part, trust_remote_code=False, on_layer=lambda *_: None).model
    asked: list[str] = []
    long_way = Module.__getattr__

    def noted(module: Module, name: str) -> Any:
        found = long_way(module, name)
        if isinstance(found, Module):
            asked.append(name)
        return found

    monkeypatch.setattr(Module, "__getattr__", noted)
    mx.eval(model(mx.array([[1, 2, 3]])))
    assert asked == []


class Outer(Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Linear(2, 2)
        self.scale = mx.array(1.0)
        # A name that means something else to the class: the class wins, as ever.
        self["called"] = Linear(2, 2)

    def called(self) -> str:
        return "the method"


def test_weights_may_still_be_replaced_and_methods_stay() -> None:
    module = Outer()
    pin_submodules([module])
    assert vars(module)["inner"] is module["inner"]
    assert module.called() == "the method"
    module.scale = mx.array(2.0)
    module.inner.weight = mx.zeros((2, 2))
    assert module.scale.item() == 2.0
    assert mx.array_equal(module.inner.weight, mx.zeros((2, 2)))
