"""All rows of a runner, in lanes that take turns. Knows sequences by number, not requests.

What it does depends only on its calls, so all ranks that follow the same orders have the same rows
in the same places.
"""

import time
from typing import Any

from skulkd.runner.generation.executors import Executor
from skulkd.runner.generation.lane import Lane, PromptProgress
from skulkd.runner.generation.prefill import CachedSequence, Evaluate, evaluate
from skulkd.runner.generation.rows import Row, SampledToken
from skulkd.runner.generation.sampling import Processor, Sampler
from skulkd.runner.generation.scheduler import PrefillPacer


class Batch:
    def __init__(
        self, executor: Executor, *, lanes: int, pacer: PrefillPacer, wait: Evaluate = evaluate
    ) -> None:
        self._lanes = [Lane(executor, wait) for _ in range(lanes)]
        self._by_age = list(range(lanes))
        """Lanes by their newest step, the oldest first."""
        self._pacer = pacer
        self._next_uid = 0
        self._steady = False

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes)

    def add(
        self,
        prompt: list[int],
        *,
        known: int,
        caches: list[Any],
        max_tokens: int,
        sampler: Sampler,
        processors: list[Processor],
        top_logprobs: int | None = None,
    ) -> int:
        """The number of a new row; its caches hold the first `known` prompt tokens."""
        uid, self._next_uid = self._next_uid, self._next_uid + 1
        row = Row(
            uid, prompt[known:], prompt[:known], sampler, processors, max_tokens, top_logprobs
        )
        min(self._lanes, key=len).add(row, caches)
        return uid

    def drop(self, uids: set[int]) -> None:
        """Remove rows."""
        if any(lane.ends_with(uids) for lane in self._lanes):
            # A sent message must be received, or it would be read as part of the next one.
            self._settle()
        for lane in self._lanes:
            if not uids.isdisjoint(lane.uids):
                lane.drop(uids)

    def _settle(self) -> None:
        """Receive all that was sent, in the order in which it was sent.

        The tokens of all lanes reach rank 0 over one connection: reading another lane first would
        give it the tokens of this one.
        """
        for number in self._by_age:
            self._lanes[number].settle()

    def cached(self, uid: int) -> CachedSequence:
        """What is computed of a row so far."""
        return next(lane for lane in self._lanes if uid in lane.uids).cached(uid)

    def balance(self) -> None:
        """Move half of the fullest lane's rows to an empty one, so that no stage idles."""
        if len(self._lanes) == 1:
            return
        empty = next((lane for lane in self._lanes if not len(lane)), None)
        fullest = max(self._lanes, key=lambda lane: len(lane.movable))
        uids = fullest.movable
        if empty is not None and len(uids) > 1:
            self._settle()
            fullest.move(set(uids[len(uids) // 2 :]), empty)

    def next_lane(self) -> int:
        """Of the lanes that have rows, the one whose last step is oldest.

        So tokens are also received in the order in which they were sent.
        """
        return next((number for number in self._by_age if len(self._lanes[number])), 0)

    def prefill_size(self, lane: int) -> tuple[int, int]:
        """How many prompts to read together and how many tokens of each."""
        unread = self._lanes[lane].unread
        if not unread:
            return 0, 0
        rows = self._pacer.rows(unread)
        return rows, self._pacer.step(min(rows, len(unread)))

    def has_prompts(self, lane: int) -> bool:
        """Whether this lane has prompts to read."""
        return self._lanes[lane].prompts > 0

    def decode(self, lane: int) -> list[SampledToken]:
        """One token for every decoding row of the lane.

        A first token does not wait for the prompts of others. In a pipeline it does: there the
        other stages would have nothing to do meanwhile.
        """
        self._by_age.remove(lane)
        self._by_age.append(lane)
        here = self._lanes[lane]
        # After other work the time of a step is not known.
        steady, self._steady = self._steady and here.will_step, True
        started = time.perf_counter()
        sampled = here.decode()
        if sampled and steady:
            self._pacer.observe_decode(time.perf_counter() - started)
        if len(self._lanes) == 1 and here.prompts and here.first_token_queued:
            sampled += here.first_tokens()
        return sampled

    def read_prompts(self, lane: int, rows: int, size: int) -> list[PromptProgress]:
        """One piece of every prompt of the lane."""
        started = time.perf_counter()
        self._steady = False
        here = self._lanes[lane]
        before = sum(here.unread)
        progress = here.read_prompts(rows, size)
        self._pacer.observe_prefill(before - sum(here.unread), time.perf_counter() - started)
        return progress


def run_alone(batch: Batch, uid: int, tokens: int) -> None:
    """Generate these tokens for the only row, then drop it. For warm-up, on all ranks."""
    while batch.has_prompts(0):
        batch.read_prompts(0, 1, 1 << 20)
    sampled = 0
    while sampled < tokens:
        sampled += len(batch.decode(0))
    batch.drop({uid})
