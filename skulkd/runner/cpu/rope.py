"""Rotary positions for a CPU, where MLX has no kernel for them.

MLX then puts about thirty small operations in its place, for queries and keys of every layer anew,
and a step of a small model is mostly such operations. Here the angles of a step are computed once
for all layers. Every number is the same, to the last bit.
"""

# MLX leaves its modules untyped.
# mypy: allow-untyped-calls

import math
from collections.abc import Iterable
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.positional_encoding import RoPE

from skulkd.runner.model.caches import offsets


class Angles:
    """Cosines and sines of positions, those of the last step kept; sines signed for `turned`."""

    def __init__(self, dims: int, base: float, scale: float) -> None:
        half = dims // 2
        exponents = mx.arange(0, -half, -1, dtype=mx.float32)
        self._frequencies = mx.exp(exponents * mx.array(math.log(base) / half, mx.float32))
        self._scale = scale
        mx.eval(self._frequencies)
        self._offset: Any = None
        self._key: tuple[int, mx.Dtype] | None = None
        self._kept: tuple[mx.array, mx.array] | None = None

    def of(self, offset: Any, length: int, dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
        """For `length` positions from `offset` on: a number, or an array with one for each row."""
        key = (length, dtype)
        if offset is self._offset and key == self._key and self._kept is not None:
            return self._kept
        if isinstance(offset, mx.array) and offset not in offsets:
            # It may change in place, so nothing tells whether it is still the same.
            return self._computed(offset, length, dtype)
        if self._kept is None or key != self._key or not _same(offset, self._offset):
            self._offset, self._key = offset, key
            self._kept = self._computed(offset, length, dtype)
        return self._kept

    def _computed(self, offset: Any, length: int, dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
        positions = mx.arange(length, dtype=mx.float32)
        if isinstance(offset, mx.array):
            positions = positions + offset.astype(mx.float32).reshape(-1, 1, 1)
        elif offset:
            positions = positions + mx.array(offset, mx.float32)
        if self._scale != 1.0:
            positions = positions * mx.array(self._scale, mx.float32)
        theta = positions[..., None] * self._frequencies
        cos, sin = mx.cos(theta).astype(dtype), mx.sin(theta).astype(dtype)
        return mx.concatenate([cos, cos], axis=-1), mx.concatenate([-sin, sin], axis=-1)


def _same(offset: Any, other: Any) -> bool:
    if isinstance(offset, mx.array) or isinstance(other, mx.array):
        return offset is other
    return bool(offset == other)


class SharedAnglesRoPE(RoPE):
    angles: Angles

    def __call__(self, x: mx.array, offset: Any = 0) -> mx.array:
        if x.ndim != 4 or x.shape[-1] != self.dims:
            rotated: mx.array = super().__call__(x, offset=offset)
            return rotated
        cos, sin = self.angles.of(offset, x.shape[-2], x.dtype)
        first, second = mx.split(x, 2, axis=-1)
        turned = mx.concatenate([second, first], axis=-1)
        return x * cos + turned * sin


def share_rope_angles(modules: Iterable[Module]) -> None:
    """Let modules with plain rotary positions share the angles of a step. For a CPU only."""
    shared: dict[tuple[int, float, float], Angles] = {}
    for module in (inner for root in modules for inner in root.modules()):
        if type(module) is RoPE and not module.traditional and module.dims % 2 == 0:
            key = (module.dims, module.base, module.scale)
            if key not in shared:
                shared[key] = Angles(*key)
            vars(module)["angles"] = shared[key]
            module.__class__ = SharedAnglesRoPE
