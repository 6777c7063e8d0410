"""Key-value caches that cost no more than mlx-lm's single ones while rows need no padding.

mlx-lm's batch cache carries offsets and masks as arrays even for one row, which a small model
feels. These keep plain numbers until padding makes the arrays necessary.
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
    """Several sequences. `offset` is a number while no row is padded, else an array."""

    def __init__(self, left_padding: list[int]) -> None:
        super().__init__(left_padding)
        self._even = not any(left_padding)
        if self._even:
            self.offset: Any = 0

    @classmethod
    def merge(cls, caches: list[Any]) -> Any:
        # For empty caches mlx-lm would make one of its own class.
        if all(cache.empty() for cache in caches):
            return cls([0] * len(caches))
        return super().merge(caches)

    def prepare(self, **how: Any) -> None:
        self._spread()
        super().prepare(**how)

    def filter(self, batch_indices: Any) -> None:
        self._spread()
        super().filter(batch_indices)
        self._settle()

    def extend(self, other: "LeanBatchKVCache") -> None:
        self._spread()
        other._spread()
        super().extend(other)
        self._settle()

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

    def _spread(self) -> None:
        if self._even:
            self._even = False
            self.offset = mx.full(
                self.left_padding.shape, self.offset, dtype=self.left_padding.dtype
            )

    def _settle(self) -> None:
        padding: Any = self.left_padding.tolist()
        if not any(padding):
            self._even = True
            self.offset = self._idx


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
