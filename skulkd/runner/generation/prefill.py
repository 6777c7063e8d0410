"""Prompts that are read together: their rows and the caches they share."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from skulkd.runner.generation.executors import Executor
from skulkd.runner.generation.rows import Row
from skulkd.runner.model.caches import filtered, joined, merged, shortened, split_off

# Above this many tokens the scratch memory of a step is freed at once.
_LARGE_STEP = 512
Evaluate = Callable[[str, Any], None]
"""Wait for an array; the name says what for."""


def evaluate(_: str, array: Any) -> None:
    mx.eval(array)


@dataclass(frozen=True, slots=True)
class CachedSequence:
    """The caches of a sequence and the tokens they hold."""

    caches: list[Any]
    tokens: list[int]

    def copy(self) -> list[Any]:
        """Caches for one more sequence; the arrays stay shared where that is possible."""
        return shortened(self.caches, len(self.tokens)) or copy.deepcopy(self.caches)


class PrefillBatch:
    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.rows: list[Row] = []
        self._caches: list[Any] = []

    def add(self, starting: list[tuple[Row, list[Any]]]) -> None:
        """More rows, with their caches."""
        self._caches = joined(self._caches, merged([caches for _, caches in starting]))
        self.rows += [row for row, _ in starting]

    def cached(self, at: int) -> CachedSequence:
        """What is computed of a row so far."""
        row = self.rows[at]
        caches = [cache.extract(at) for cache in self._caches]
        return CachedSequence(caches, row.tokens[: row.cached])

    def drop(self, uids: set[int]) -> None:
        staying = [at for at, row in enumerate(self.rows) if row.uid not in uids]
        if len(staying) < len(self.rows):
            self.rows = [self.rows[at] for at in staying]
            self._caches = filtered(self._caches, staying)

    def pop_ready(self) -> tuple[list[Row], list[Any]]:
        """Remove the rows whose prompts are read; they and their caches."""
        ready = [at for at, row in enumerate(self.rows) if len(row.unread) == 1]
        if not ready:
            return [], []
        rest = [at for at, row in enumerate(self.rows) if len(row.unread) > 1]
        rows = [self.rows[at] for at in ready]
        if rest:
            caches = split_off(self._caches, rest, ready)
        else:
            caches, self._caches = self._caches, []
        self.rows = [self.rows[at] for at in rest]
        return rows, caches

    def read(self, size: int, wait: Evaluate) -> None:
        """Read up to `size` tokens of every prompt, all but the last one."""
        parts = [row.unread[: min(size, len(row.unread) - 1)] for row in self.rows]
        self._compute(parts, wait)
        for row, part in zip(self.rows, parts, strict=True):
            del row.unread[: len(part)]
            row.tokens += part
            row.cached += len(part)

    def _compute(self, parts: list[list[int]], wait: Evaluate) -> None:
        longest = max(len(part) for part in parts)
        padding = [longest - len(part) for part in parts]
        padded = mx.array([part + [0] * pad for part, pad in zip(parts, padding, strict=True)])
        if any(padding):
            lengths = [len(part) for part in parts]
            for cache in self._caches:
                cache.prepare(lengths=lengths, right_padding=padding)
        for name, array in self._executor.prefill(padded, self._caches):
            wait(name, array)
        if any(padding):
            for cache in self._caches:
                cache.finalize()
            mx.eval([cache.state for cache in self._caches])
        if longest * len(parts) > _LARGE_STEP:
            mx.clear_cache()
