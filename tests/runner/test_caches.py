"""Caches of rows that need padding: the numbers of mlx-lm, with less work."""

# mlx-lm leaves its caches untyped.
# mypy: allow-untyped-calls

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import pytest
from mlx.nn.layers.positional_encoding import RoPE
from mlx_lm.models.cache import BatchKVCache, KVCache

from skulkd.runner.cpu import rope as rope_module
from skulkd.runner.cpu.rope import share_rope_angles
from skulkd.runner.model.caches import LeanBatchKVCache, LeanKVCache, offsets

HEADS, WIDTH = 2, 4


def filled(kind: type[KVCache], length: int) -> KVCache:
    cache = kind()
    entries = mx.broadcast_to(mx.arange(length, dtype=mx.float32)[:, None], (length, WIDTH))
    whole = mx.broadcast_to(entries, (1, HEADS, length, WIDTH))
    cache.update_and_fetch(whole, -whole)
    return cache


def pair(lengths: list[int]) -> tuple[LeanBatchKVCache, Any]:
    """The same rows in our cache and in mlx-lm's."""
    ours = LeanBatchKVCache.merge([filled(LeanKVCache, n) for n in lengths])
    theirs = BatchKVCache.merge([filled(KVCache, n) for n in lengths])
    return ours, theirs


def step(cache: Any, tokens: int, seed: int) -> Any:
    key = mx.random.key(seed)
    entries = mx.random.normal((len(cache.left_padding.tolist()), HEADS, tokens, WIDTH), key=key)
    return cache.update_and_fetch(entries, -entries)


def positions(cache: Any) -> list[int]:
    rows = len(cache.left_padding.tolist())
    offset: Any = cache.offset
    if not isinstance(offset, mx.array):
        return [offset] * rows
    numbers: Any = offset.tolist()
    return list(numbers)


@pytest.mark.parametrize("seed", range(12))
def test_offsets_stay_those_of_mlx_lm(seed: int) -> None:
    draw = random.Random(seed)
    ours, theirs = pair([draw.randint(1, 9) for _ in range(3)])
    for number in range(30):
        rows = len(positions(ours))
        what = draw.choice(["step", "step", "read", "filter", "extend"])
        if what == "step":
            fetched = step(ours, 1, number), step(theirs, 1, number)
            assert all(mx.array_equal(*each).item() for each in zip(*fetched, strict=True))
        elif what == "read":
            padding = [draw.randint(0, 3) for _ in range(rows)]
            for cache in (ours, theirs):
                cache.prepare(lengths=[4 - each for each in padding], right_padding=padding)
                step(cache, 4, number)
            assert positions(ours) == positions(theirs)
            ours.finalize()
            theirs.finalize()
        elif what == "filter" and rows > 1:
            staying = sorted(draw.sample(range(rows), draw.randint(1, rows - 1)))
            ours.filter(staying)
            theirs.filter(staying)
        elif what == "extend" and rows < 6:
            more = pair([draw.randint(1, 9) for _ in range(2)])
            ours.extend(more[0])
            theirs.extend(more[1])
        assert positions(ours) == positions(theirs)
        assert ours.left_padding.tolist() == theirs.left_padding.tolist()


def test_the_layers_of_a_step_share_one_array_of_offsets() -> None:
    layers = [pair([3, 5])[0] for _ in range(4)]
    for number in range(3):
        for layer in layers:
            step(layer, 1, number)
        assert all(layer.offset is layers[0].offset for layer in layers)
        assert layers[0].offset in offsets
        assert layers[0].offset.tolist() == [4 + number, 6 + number]


def test_angles_of_padded_rows_are_computed_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Any] = []
    compute = rope_module.Angles._computed

    def counted(self: Any, offset: Any, length: int, dtype: Any) -> Any:
        computed.append(offset)
        return compute(self, offset, length, dtype)

    monkeypatch.setattr(rope_module.Angles, "_computed", counted)
    ours, theirs = RoPE(WIDTH), RoPE(WIDTH)
    share_rope_angles([ours])
    layers = [pair([3, 5])[0] for _ in range(4)]
    x = mx.random.normal((2, HEADS, 1, WIDTH))
    for number in range(3):
        for layer in layers:
            offset: Any = mx.array(positions(layer))
            expected = theirs(x, offset=offset)
            assert mx.array_equal(ours(x, offset=layer.offset), expected).item()
            step(layer, 1, number)
        assert len(computed) == number + 1
