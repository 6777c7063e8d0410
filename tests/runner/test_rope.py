"""Rotary positions on a CPU: the numbers of MLX, with less work."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx.nn.layers.base import Module
from mlx.nn.layers.positional_encoding import RoPE

from skulkd.runner.cpu.rope import SharedAnglesRoPE, share_rope_angles

DIMS = 64


class Model(Module):
    def __init__(self, *ropes: RoPE) -> None:
        super().__init__()
        self.layers = list(ropes)


def quick(**how: Any) -> RoPE:
    rope = RoPE(DIMS, **how)
    share_rope_angles([Model(rope)])
    return rope


OFFSETS = {
    "the beginning": 0,
    "a number": 1234,
    "far away": 131_071,
    "rows of their own": [5, 1000, 33],
    "padded rows": [-4, 0, 8000],
}


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("how", [{}, {"base": 500_000.0}, {"scale": 0.25}], ids=str)
@pytest.mark.parametrize("length", [1, 9])
@pytest.mark.parametrize("name", list(OFFSETS))
def test_every_bit_is_that_of_mlx(
    name: str, length: int, how: dict[str, float], dtype: mx.Dtype
) -> None:
    given = OFFSETS[name]
    offset: Any = mx.array(given) if isinstance(given, list) else given
    x = mx.random.normal((3, 4, length, DIMS)).astype(dtype)
    ours, theirs = quick(**how), RoPE(DIMS, **how)
    assert isinstance(ours, SharedAnglesRoPE)
    for each in (x, 2 * x):
        assert mx.array_equal(ours(each, offset=offset), theirs(each, offset=offset)).item()


def test_an_array_that_changes_in_place_is_looked_at_again() -> None:
    ours, theirs = quick(), RoPE(DIMS)
    x, offset = mx.random.normal((2, 4, 1, DIMS)), mx.array([3, 9])
    ours(x, offset=offset)
    offset += 1
    assert mx.array_equal(ours(x, offset=offset), theirs(x, offset=offset)).item()


def test_layers_share_the_angles_of_a_step() -> None:
    model = Model(RoPE(DIMS), RoPE(DIMS), RoPE(DIMS, base=5.0))
    share_rope_angles([model])
    one, two, other = (layer.angles for layer in model.layers)
    assert one is two
    assert one is not other
    assert one.of(7, 1, mx.float32)[0] is two.of(7, 1, mx.float32)[0]
    assert one.of(8, 1, mx.float32)[0] is not one.of(7, 1, mx.float32)[0]


def test_other_kinds_stay_as_they_are() -> None:
    traditional, partial = RoPE(DIMS, traditional=True), RoPE(DIMS // 2)
    share_rope_angles([Model(traditional, partial)])
    assert type(traditional) is RoPE
    x = mx.random.normal((1, 4, 5, DIMS))
    assert mx.array_equal(partial(x, offset=3), RoPE(DIMS // 2)(x, offset=3)).item()
