"""Prompts that are read together: their rows and the caches they share."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from skulkd.runner.caches import joined, merged, shortened, split_off
from skulkd.runner.rows import Row
from skulkd.runner.seats import Seat

# Above this many tokens a step's scratch memory is given back at once.
_LARGE_STEP = 512
Wait = Callable[[str, Any], None]


def wait_for(_: str, array: Any) -> None:
    mx.eval(array)


@dataclass(frozen=True, slots=True)
class Kept:
    """The caches of a sequence and the tokens they hold."""

    caches: list[Any]
    tokens: list[int]

    def copy(self) -> list[Any]:
        """Caches for one more sequence; what is computed stays shared."""
        return shortened(self.caches, len(self.tokens)) or copy.deepcopy(self.caches)


class Reading:
    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.rows: list[Row] = []
        self._caches: list[Any] = []

    def add(self, starting: list[tuple[Row, list[Any]]]) -> None:
        """More rows, with their caches."""
        self._caches = joined(self._caches, merged([single for _, single in starting]))
        self.rows += [row for row, _ in starting]

    def kept(self, at: int) -> Kept:
        """What is computed of a row so far."""
        row = self.rows[at]
        return Kept([cache.extract(at) for cache in self._caches], row.tokens[: row.inside])

    def drop(self, uids: set[int]) -> None:
        staying = [at for at, row in enumerate(self.rows) if row.uid not in uids]
        if len(staying) < len(self.rows):
            self.rows = [self.rows[at] for at in staying]
            self._caches = filtered(self._caches, staying)

    def take_ready(self) -> tuple[list[Row], list[Any]]:
        """The rows whose prompts are read, and their caches; they are gone from here."""
        ready = [at for at, row in enumerate(self.rows) if len(row.todo) == 1]
        if not ready:
            return [], []
        rest = [at for at, row in enumerate(self.rows) if len(row.todo) > 1]
        rows = [self.rows[at] for at in ready]
        if rest:
            caches = split_off(self._caches, rest, ready)
        else:
            caches, self._caches = self._caches, []
        self.rows = [self.rows[at] for at in rest]
        return rows, caches

    def read(self, size: int, wait: Wait) -> None:
        """Read up to `size` tokens of every prompt, all but the last one."""
        parts = [row.todo[: min(size, len(row.todo) - 1)] for row in self.rows]
        self._compute(parts, wait)
        for row, part in zip(self.rows, parts, strict=True):
            del row.todo[: len(part)]
            row.tokens += part
            row.inside += len(part)

    def _compute(self, parts: list[list[int]], wait: Wait) -> None:
        longest = max(len(part) for part in parts)
        padding = [longest - len(part) for part in parts]
        padded = mx.array([part + [0] * pad for part, pad in zip(parts, padding, strict=True)])
        if any(padding):
            lengths = [len(part) for part in parts]
            for cache in self._caches:
                cache.prepare(lengths=lengths, right_padding=padding)
        for name, array in self._seat.prefill(padded, self._caches):
            wait(name, array)
        if any(padding):
            for cache in self._caches:
                cache.finalize()
            mx.eval([cache.state for cache in self._caches])
        if longest * len(parts) > _LARGE_STEP:
            mx.clear_cache()


def filtered(caches: list[Any], staying: list[int]) -> list[Any]:
    """The same caches with only these rows."""
    if not staying:
        return []
    for cache in caches:
        cache.filter(staying)
    return caches
