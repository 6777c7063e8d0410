"""Prompts that were computed before, kept for the next turn: least recently used goes first.

mlx-lm has such a cache too. Its search copies token lists in square time on long conversations,
and it limits entries by number and kind before it looks at bytes; this one only counts bytes.
In a group rank 0 searches and decides; the others keep what has the same number.
"""

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from skulkd.runner.caches import can_trim, shortened
from skulkd.runner.prefix_index import PrefixIndex


@dataclass(frozen=True, slots=True)
class _Entry:
    caches: list[Any]
    length: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Hit:
    """Caches that hold the first `length` tokens of the prompt. `number` is -1 for no hit."""

    number: int = -1
    length: int = 0


class PrefixCache:
    """`limit_bytes` 0 turns it off. `whole`: no rank may cut its entries back.

    What has been let go since it was last asked is in `evicted`.
    """

    def __init__(self, limit_bytes: int, *, whole: bool = False) -> None:
        self._limit_bytes = limit_bytes
        self._whole = whole
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._index = PrefixIndex()
        self._next_number = 0
        self._evicted: list[int] = []
        self.size_bytes = 0

    @property
    def enabled(self) -> bool:
        return self._limit_bytes > 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, prompt: list[int]) -> Hit:
        """The longest known beginning of the prompt, always shorter than the prompt itself."""
        most = len(prompt) - 1
        best = Hit()
        closest = self._index.closest(prompt)
        if closest is not None and self._can_cut(closest[0]):
            best = Hit(closest[0], min(closest[1], most))
        if inside := self._index.contained(prompt[:most]):
            length = self._entries[inside[-1]].length
            best = Hit(inside[-1], length) if length > best.length else best
        if best.number >= 0:
            self._entries.move_to_end(best.number)
        return best

    def take(self, hit: Hit) -> list[Any] | None:
        """Caches for one more sequence that begins like this; None for no hit."""
        if hit.number < 0:
            return None
        entry = self._entries[hit.number]
        cut = shortened(entry.caches, hit.length)
        if cut is not None:
            return cut
        caches = copy.deepcopy(entry.caches)
        if hit.length < entry.length:
            for cache in caches:
                cache.trim(entry.length - hit.length)
        return caches

    def add(self, tokens: list[int], caches: list[Any]) -> bool | None:
        """Keep the caches of these tokens. True: in place of a shorter one; None: not kept."""
        number = self._number()
        size = sum(cache.nbytes for cache in caches)
        if not tokens or size > self._limit_bytes:
            self._evicted.append(number)
            return None
        # Without this the entry would hold on to the whole batch it was cut from.
        mx.eval([cache.state for cache in caches])
        replaced = self._drop_beginnings(tokens, caches)
        self._entries[number] = _Entry(caches, len(tokens), size)
        self._index.add(number, tokens)
        self.size_bytes += size
        while self.size_bytes > self._limit_bytes:
            self._drop(next(iter(self._entries)))
        return replaced

    def follow(self, length: int, caches: list[Any]) -> None:
        """Keep caches as rank 0 does; it will say when to let them go."""
        mx.eval([cache.state for cache in caches])
        self._entries[self._number()] = _Entry(caches, length, 0)

    def evicted(self) -> tuple[int, ...]:
        """The numbers let go since the last time."""
        gone, self._evicted = tuple(self._evicted), []
        return gone

    def forget(self, numbers: tuple[int, ...]) -> None:
        """Let these go, because rank 0 did."""
        for number in numbers:
            self._entries.pop(number, None)

    def clear(self) -> None:
        self._entries.clear()
        self._index = PrefixIndex()
        self.size_bytes = 0

    def _number(self) -> int:
        number, self._next_number = self._next_number, self._next_number + 1
        return number

    def _can_cut(self, number: int) -> bool:
        return not self._whole and can_trim(self._entries[number].caches)

    def _drop_beginnings(self, tokens: list[int], caches: list[Any]) -> bool:
        """Entries that the new one contains are of no more use, if it can be cut back to them."""
        cuttable = not self._whole and can_trim(caches)
        covered = [
            number
            for number in self._index.contained(tokens)
            if cuttable or self._entries[number].length == len(tokens)
        ]
        for number in covered:
            self._drop(number)
        return bool(covered)

    def _drop(self, number: int) -> None:
        self.size_bytes -= self._entries.pop(number).size_bytes
        self._index.remove(number)
        self._evicted.append(number)
