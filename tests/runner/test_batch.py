"""Rows that take their steps together: who is served first."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from skulkd.runner.generation.batch import Batch
from skulkd.runner.generation.executors import StepResult
from skulkd.runner.generation.rows import Row
from skulkd.runner.generation.sampling import greedy
from skulkd.runner.generation.scheduler import PrefillPacer
from skulkd.runner.model.caches import LeanKVCache


class RecordingExecutor:
    """An executor without a model: it records its calls, and every token is 7."""

    sees_tokens = True

    def __init__(self) -> None:
        self.done: list[str] = []

    def decode(self, inputs: StepResult, caches: list[Any], rows: list[Row]) -> StepResult:
        self.done.append(f"decode {len(rows)}")
        self._fill(inputs.tokens[:, None], caches)
        return StepResult(mx.full(inputs.tokens.shape, 7, mx.uint32), None)

    def prefill(self, tokens: mx.array, caches: list[Any]) -> tuple[tuple[str, Any], ...]:
        self.done.append(f"read {tokens.shape[0]}")
        self._fill(tokens, caches)
        return ()

    @staticmethod
    def _fill(tokens: mx.array, caches: list[Any]) -> None:
        entries = mx.zeros((tokens.shape[0], 1, tokens.shape[1], 1))
        for cache in caches:
            cache.update_and_fetch(entries, entries)


def add(batch: Batch, tokens: int) -> int:
    return batch.add(
        list(range(tokens)), known=0, caches=[LeanKVCache()], max_tokens=4, sampler=greedy,
        processors=[],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lanes", "order"),
    [
        # Nothing to hide the wait behind: the first answer begins before the second prompt.
        (1, ["read 1", "decode 1", "token 0", "read 1"]),
        # A pipeline keeps its stages busy, and tells of the token a turn later.
        (2, ["read 1", "decode 1", "read 1", "token 0"]),
    ],
)
def test_a_first_token_waits_for_no_other_prompt(lanes: int, order: list[str]) -> None:
    executor = RecordingExecutor()
    batch = Batch(executor, lanes=lanes, pacer=PrefillPacer(None))
    for _ in range(2 * lanes):
        add(batch, 5)
    for _ in range(3):
        for item in batch.decode(0):
            executor.done.append(f"token {item.uid}")
        if batch.has_prompts(0):
            batch.read_prompts(0, 1, 64)
    assert executor.done[: len(order)] == order


def test_no_row_gets_two_tokens_in_one_turn() -> None:
    """The first of them may have been its last."""
    batch = Batch(RecordingExecutor(), lanes=1, pacer=PrefillPacer(None))
    add(batch, 5)
    turns: list[list[int]] = []
    for turn in range(8):
        if turn == 3:
            # It decodes alone by now, a step ahead, when two prompts come.
            add(batch, 5)
            add(batch, 5)
        turns.append([item.uid for item in batch.decode(0)])
        if batch.has_prompts(0):
            batch.read_prompts(0, 1, 64)
    assert all(len(turn) == len(set(turn)) for turn in turns), turns
    assert {uid for turn in turns for uid in turn} == {0, 1, 2}


@pytest.mark.parametrize(
    ("prompts", "rows"), [([], 0), ([15, 15], 8), ([50, 50], 1), ([100, 15], 1)]
)
def test_long_prompts_are_read_one_after_the_other(prompts: list[int], rows: int) -> None:
    pacer = PrefillPacer()
    pacer.observe_decode(0.010)
    pacer.observe_prefill(100, 0.110)
    batch = Batch(RecordingExecutor(), lanes=1, pacer=pacer)
    for tokens in prompts:
        add(batch, tokens)
    assert batch.prefill_size(0)[0] == rows


def test_only_steady_decoding_tells_what_a_step_costs() -> None:
    seen: list[float] = []

    class Listening(PrefillPacer):
        def observe_decode(self, seconds: float) -> None:
            seen.append(seconds)

    batch = Batch(RecordingExecutor(), lanes=1, pacer=Listening())
    add(batch, 5)
    batch.read_prompts(0, 1, 64)
    tokens = 0
    steps_before = []
    while tokens < 4:
        steps_before.append(len(seen))
        tokens += len(batch.decode(0))
    # Not the one that queues the first step, not the one that only reads the first token, and
    # not the last, which only reads.
    assert len(steps_before) == 6
    assert len(seen) == 2
