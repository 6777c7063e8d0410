"""Prompts that were computed before, kept for the next turn: least recently used goes first.

mlx-lm has such a cache too. Its search copies token lists in square time on long conversations,
and it limits entries by number and kind before it looks at bytes; this one only counts bytes.
"""

import copy
from collections import OrderedDict
from dataclasses import dataclass
from itertools import count
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from skulkd.runner.caches import can_trim, shortened

Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Entry:
    tokens: Tokens
    caches: list[Any]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Hit:
    """`caches` hold the first `length` tokens of the prompt. `index` is -1 for no hit."""

    caches: list[Any] | None = None
    length: int = 0
    index: int = -1


class PrefixCache:
    """`limit_bytes` 0 turns it off."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._numbers = count()
        self.size_bytes = 0

    @property
    def enabled(self) -> bool:
        return self._limit_bytes > 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, prompt: list[int]) -> Hit:
        """The longest known beginning of the prompt, always shorter than the prompt itself."""
        wanted = np.asarray(prompt, dtype=np.int32)
        most = len(prompt) - 1
        best, best_number = 0, -1
        for number, entry in self._entries.items():
            length = min(common_prefix(entry.tokens, wanted), most)
            if length < len(entry.tokens) and not can_trim(entry.caches):
                continue
            if length > best:
                best, best_number = length, number
        if best_number < 0:
            return Hit()
        self._entries.move_to_end(best_number)
        entry = self._entries[best_number]
        return Hit(_copied(entry, best), best, best_number)

    def add(self, tokens: list[int], caches: list[Any]) -> bool | None:
        """Keep the caches of these tokens. True: in place of a shorter one; None: not kept."""
        if not self.enabled or not tokens:
            return None
        kept = np.asarray(tokens, dtype=np.int32)
        size = sum(cache.nbytes for cache in caches)
        if size > self._limit_bytes:
            return None
        # Without this the entry would hold on to the whole batch it was cut from.
        mx.eval([cache.state for cache in caches])
        replaced = self._drop_beginnings(kept, trimmable=can_trim(caches))
        self._entries[next(self._numbers)] = _Entry(kept, caches, size)
        self.size_bytes += size
        while self.size_bytes > self._limit_bytes:
            _, oldest = self._entries.popitem(last=False)
            self.size_bytes -= oldest.size_bytes
        return replaced

    def clear(self) -> None:
        self._entries.clear()
        self.size_bytes = 0

    def _drop_beginnings(self, tokens: Tokens, *, trimmable: bool) -> bool:
        """Entries that the new one contains are of no more use, if it can be cut back to them."""
        covered = [
            number
            for number, entry in self._entries.items()
            if common_prefix(entry.tokens, tokens) == len(entry.tokens)
            and (trimmable or len(entry.tokens) == len(tokens))
        ]
        for number in covered:
            self.size_bytes -= self._entries.pop(number).size_bytes
        return bool(covered)


def common_prefix(one: Tokens, other: Tokens) -> int:
    """How many tokens both begin with."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if different.size else length


def _copied(entry: _Entry, length: int) -> list[Any]:
    cut = shortened(entry.caches, length)
    if cut is not None:
        return cut
    caches = copy.deepcopy(entry.caches)
    if length < len(entry.tokens):
        for cache in caches:
            cache.trim(len(entry.tokens) - length)
    return caches
