"""Key-value caches that cost no more than mlx-lm's single ones while rows need no padding.

mlx-lm's batch cache carries offsets and masks as arrays even for one row, which slows a small model
down. These keep plain numbers until padding makes an array necessary, and then the caches of all
layers share one array per step.
"""

# mlx-lm leaves its cache methods untyped.
# mypy: allow-untyped-calls

import copy
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import (
    BatchKVCache,
    KVCache,
    can_trim_prompt_cache,
    create_attention_mask,
    make_prompt_cache,
)


class LeanKVCache(KVCache):
    """One sequence; joins others as a LeanBatchKVCache."""

    @classmethod
    def merge(cls, caches: list[Any]) -> Any:
        return LeanBatchKVCache.merge(caches)


class LeanBatchKVCache(BatchKVCache):
    """Several sequences. `offset` is a number while no row is padded, else a shared array.

    It always is the index minus the padding of each row, so plain numbers are enough to know it.
    """

    def __init__(self, left_padding: list[int]) -> None:
        super().__init__(left_padding)
        self._padding = tuple(left_padding)
        self._even = not any(left_padding)
        if self._even:
            self.offset: Any = 0

    @classmethod
    def merge(cls, caches: list[Any]) -> Any:
        # For empty caches mlx-lm would make one of its own class.
        if all(cache.empty() for cache in caches):
            return cls([0] * len(caches))
        batch = super().merge(caches)
        batch._choose_offset()
        return batch

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        fetched = super().update_and_fetch(keys, values)
        if not self._even:
            self.offset = offsets.get(self._padding, self._idx)
        return fetched

    def prepare(self, **how: Any) -> None:
        self._use_array()
        super().prepare(**how)
        self._padding = _sum(self._padding, how.get("left_padding"))

    def finalize(self) -> None:
        padding = None if self._right_padding is None else self._right_padding.tolist()
        super().finalize()
        self._padding = _sum(self._padding, padding)
        self._choose_offset()

    def filter(self, batch_indices: list[int]) -> None:
        self._use_array()
        super().filter(batch_indices)
        staying = [self._padding[at] for at in batch_indices]
        self._padding = tuple(padding - min(staying) for padding in staying)
        self._choose_offset()

    def extend(self, other: "LeanBatchKVCache") -> None:
        self._use_array()
        other._use_array()
        longest = max(self._idx, other._idx)
        padding = [
            each + longest - cache._idx for cache in (self, other) for each in cache._padding
        ]
        super().extend(other)
        self._padding = tuple(padding)
        self._choose_offset()

    def extract(self, idx: int) -> LeanKVCache:
        single = super().extract(idx)
        return _lean(single.keys, single.values, single.offset)

    def make_mask(self, N: int, return_array: bool = False, **how: Any) -> Any:
        if self._even:
            window = how.get("window_size")
            return create_attention_mask(
                N, offset=self._idx, return_array=return_array, window_size=window
            )
        return super().make_mask(N, return_array=return_array, **how)

    def _use_array(self) -> None:
        if self._even:
            self._even = False
            self.offset = offsets.get(self._padding, self._idx)

    def _choose_offset(self) -> None:
        self._even = not any(self._padding)
        self.offset = self._idx if self._even else offsets.get(self._padding, self._idx)


class SharedOffsets:
    """The offsets of rows as arrays that do not change, one for the caches of all layers.

    Rotary positions are computed once for each of these (`rope.py`).
    """

    _KEPT = 16

    def __init__(self) -> None:
        self._arrays: dict[tuple[tuple[int, ...], int], mx.array] = {}

    def get(self, padding: tuple[int, ...], index: int) -> mx.array:
        key = (padding, index)
        if (known := self._arrays.get(key)) is not None:
            return known
        while len(self._arrays) >= self._KEPT:
            del self._arrays[next(iter(self._arrays))]
        made = self._arrays[key] = mx.array([index - each for each in padding])
        return made

    def __contains__(self, array: mx.array) -> bool:
        return any(array is known for known in reversed(self._arrays.values()))


offsets = SharedOffsets()


def _sum(padding: tuple[int, ...], more: Any) -> tuple[int, ...]:
    if more is None:
        return padding
    return tuple(some + other for some, other in zip(padding, more, strict=True))


def _lean(keys: Any, values: Any, offset: int) -> LeanKVCache:
    cache = LeanKVCache()
    cache.keys, cache.values, cache.offset = keys, values, offset
    return cache


def fresh_caches(model: Any) -> list[Any]:
    """Empty caches for one sequence, one per layer."""
    caches: list[Any] = make_prompt_cache(model)
    return [LeanKVCache() if type(cache) is KVCache else cache for cache in caches]


def merged(caches: list[list[Any]]) -> list[Any]:
    """Caches of several sequences as caches of one batch."""
    return [layer[0].merge(list(layer)) for layer in zip(*caches, strict=True)]


def joined(some: list[Any], more: list[Any]) -> list[Any]:
    """Two batches as one; both are used up."""
    if not some or not more:
        return some or more
    for one, other in zip(some, more, strict=True):
        one.extend(other)
    return some


def filtered(caches: list[Any], staying: list[int]) -> list[Any]:
    """The same caches with only these rows."""
    if not staying:
        return []
    for cache in caches:
        cache.filter(staying)
    return caches


def split_off(caches: list[Any], keep: list[int], leave: list[int]) -> list[Any]:
    """Shrink a batch to the rows in `keep`; the rows in `leave` as a batch of their own."""
    # Filtering makes new arrays, so that a copy need not be deep unless it has parts.
    copies = [
        copy.copy(cache) if isinstance(cache, LeanBatchKVCache) else copy.deepcopy(cache)
        for cache in caches
    ]
    for cache in caches:
        cache.filter(keep)
    for cache in copies:
        cache.filter(leave)
    return copies


def can_batch(model: Any) -> bool:
    """Whether mlx-lm can decode several sequences of this model together."""
    return all(hasattr(cache, "merge") for cache in make_prompt_cache(model))


def can_trim(caches: list[Any]) -> bool:
    return bool(can_trim_prompt_cache(caches))


def shortened(caches: list[Any], tokens: int) -> list[Any] | None:
    """The same caches with only the first `tokens`; the given ones are left as they are.

    None when these caches cannot give tokens back.
    """
    if any(type(cache) is not LeanKVCache for cache in caches):
        return None
    # The arrays are shared: joining a batch copies them, so nobody writes to these.
    return [_lean(cache.keys, cache.values, min(tokens, cache.offset)) for cache in caches]
