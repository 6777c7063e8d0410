"""Caches of earlier prompts, kept for the next turn; the least recently used is evicted first.

Of several prompts that begin alike, such as questions below one system prompt, the older ones go
before any prompt that nothing else covers: little has to be read again for them.

mlx-lm has such a cache too, but its search takes square time on long conversations, and it limits
the number of entries instead of their bytes. In a group rank 0 searches and decides; the other
ranks keep the entries of the same numbers.
"""

import copy
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import mlx.core as mx

from skulkd.runner.model.caches import can_trim, shortened

BLOCK = 16
# Prompts that have all their whole blocks in common: the newest are compared token by token.
_COMPARED = 8
# So much of an entry must be in another one, too, to be evicted before its turn.
_COVERED = 0.75
# Entries looked at for that, from the least recently used on.
_LOOKED_AT = 32


class _Node:
    __slots__ = ("children", "ends", "through")

    def __init__(self) -> None:
        self.children: dict[tuple[int, ...], _Node] = {}
        self.through: dict[int, None] = {}
        self.ends: dict[int, None] = {}


class PrefixIndex:
    """Knows token lists by number."""

    def __init__(self) -> None:
        self._root = _Node()
        self._tokens: dict[int, list[int]] = {}

    def add(self, number: int, tokens: list[int]) -> None:
        self._tokens[number] = tokens
        node = self._root
        for block in _blocks(tokens):
            node = node.children.setdefault(block, _Node())
            node.through[number] = None
        node.ends[number] = None

    def remove(self, number: int) -> None:
        tokens = self._tokens.pop(number)
        path = [self._root]
        for block in _blocks(tokens):
            path.append(path[-1].children[block])
        path[-1].ends.pop(number)
        for parent, node, block in zip(path[:-1], path[1:], _blocks(tokens), strict=True):
            node.through.pop(number)
            if not node.through:
                del parent.children[block]
                return

    def contained(self, tokens: list[int]) -> list[int]:
        """Everything known that these tokens begin with, the longest last."""
        return [
            number
            for depth, node in enumerate(self._path(tokens))
            for number in sorted(node.ends, key=lambda n: len(self._tokens[n]))
            if _begins_with(tokens, self._tokens[number], depth * BLOCK)
        ]

    def closest(self, tokens: list[int]) -> tuple[int, int] | None:
        """The number with the longest common beginning, and its length; at least one block."""
        path = self._path(tokens)
        depth = len(path) - 1
        if depth == 0:
            return None
        newest = list(path[-1].through)[-_COMPARED:]
        return max(
            ((number, _common(self._tokens[number], tokens, depth * BLOCK)) for number in newest),
            key=lambda found: found[1],
        )

    def shared(self, number: int) -> int:
        """How many of its first tokens another entry has, too, in whole blocks."""
        path = self._path(self._tokens[number])[1:]
        return BLOCK * sum(len(node.through) > 1 for node in path)

    def _path(self, tokens: list[int]) -> list[_Node]:
        path = [self._root]
        for block in _blocks(tokens):
            child = path[-1].children.get(block)
            if child is None:
                break
            path.append(child)
        return path


def _blocks(tokens: list[int]) -> Iterator[tuple[int, ...]]:
    for at in range(0, len(tokens) - BLOCK + 1, BLOCK):
        yield tuple(tokens[at : at + BLOCK])


def _common(one: list[int], other: list[int], known: int) -> int:
    """How many tokens both begin with, when the first `known` are the same."""
    limit = min(len(one), len(other))
    at = known
    while at < limit and one[at] == other[at]:
        at += 1
    return at


def _begins_with(tokens: list[int], beginning: list[int], known: int) -> bool:
    return tokens[known : len(beginning)] == beginning[known:] and len(beginning) <= len(tokens)


@dataclass(frozen=True, slots=True)
class _Entry:
    caches: list[Any]
    length: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """Caches that hold the first `length` tokens of the prompt. `number` is -1 for no hit."""

    number: int = -1
    length: int = 0


class PrefixCache:
    """`limit_bytes` 0 turns it off. `whole`: entries cannot be trimmed on all ranks."""

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

    def find(self, prompt: list[int]) -> PrefixHit:
        """The longest known beginning of the prompt, always shorter than the prompt itself."""
        most = len(prompt) - 1
        best = PrefixHit()
        closest = self._index.closest(prompt)
        if closest is not None and self._can_trim(closest[0]):
            best = PrefixHit(closest[0], min(closest[1], most))
        if inside := self._index.contained(prompt[:most]):
            length = self._entries[inside[-1]].length
            best = PrefixHit(inside[-1], length) if length > best.length else best
        if best.number >= 0:
            self._entries.move_to_end(best.number)
        return best

    def caches_for(self, hit: PrefixHit) -> list[Any] | None:
        """Caches for one more sequence with this prefix; None for no hit."""
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
        replaced = self._drop_prefixes_of(tokens, caches)
        self._entries[number] = _Entry(caches, len(tokens), size)
        self._index.add(number, tokens)
        self.size_bytes += size
        while self.size_bytes > self._limit_bytes:
            self._drop(self._victim())
        return replaced

    def mirror(self, length: int, caches: list[Any]) -> None:
        """Keep caches as rank 0 does, until it evicts them."""
        mx.eval([cache.state for cache in caches])
        self._entries[self._number()] = _Entry(caches, length, 0)

    @property
    def has_evicted(self) -> bool:
        return bool(self._evicted)

    def pop_evicted(self) -> tuple[int, ...]:
        """The numbers of entries evicted since the last call."""
        evicted, self._evicted = tuple(self._evicted), []
        return evicted

    def forget(self, numbers: tuple[int, ...]) -> None:
        """Evict what rank 0 has evicted."""
        for number in numbers:
            self._entries.pop(number, None)

    def clear(self) -> None:
        self._entries.clear()
        self._index = PrefixIndex()
        self.size_bytes = 0

    def _number(self) -> int:
        number, self._next_number = self._next_number, self._next_number + 1
        return number

    def _victim(self) -> int:
        """The least recently used entry that another one covers, else the least recently used."""
        oldest = list(islice(self._entries, _LOOKED_AT))
        covered = (number for number in oldest if self._is_covered(number))
        return next(covered, oldest[0])

    def _is_covered(self, number: int) -> bool:
        shared, length = self._index.shared(number), self._entries[number].length
        return self._can_trim(number) and shared >= _COVERED * length

    def _can_trim(self, number: int) -> bool:
        return not self._whole and can_trim(self._entries[number].caches)

    def _drop_prefixes_of(self, tokens: list[int], caches: list[Any]) -> bool:
        """Entries that the new one contains are not needed, if it can be trimmed to them."""
        trimmable = not self._whole and can_trim(caches)
        covered = [
            number
            for number in self._index.contained(tokens)
            if trimmable or self._entries[number].length == len(tokens)
        ]
        for number in covered:
            self._drop(number)
        return bool(covered)

    def _drop(self, number: int) -> None:
        self.size_bytes -= self._entries.pop(number).size_bytes
        self._index.remove(number)
        self._evicted.append(number)
