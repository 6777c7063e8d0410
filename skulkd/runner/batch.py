"""All rows of a runner, in lanes that take turns. Knows sequences by number, not requests.

What it does depends only on what it was told, so every rank of a group that is told the same
has the same rows in the same places.
"""

import time
from typing import Any

from skulkd.runner.lane import Lane, Progress
from skulkd.runner.pacing import PrefillPacer
from skulkd.runner.reading import Kept, Wait, wait_for
from skulkd.runner.rows import Drawn, Row
from skulkd.runner.sampling import Processor, Sampler
from skulkd.runner.seats import Seat


class Batch:
    def __init__(
        self, seat: Seat, *, lanes: int, pacer: PrefillPacer, wait: Wait = wait_for
    ) -> None:
        self._lanes = [Lane(seat, wait) for _ in range(lanes)]
        self._launched = list(range(lanes))
        """Lanes by their newest step, the oldest first."""
        self._pacer = pacer
        self._numbers = 0
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
        rivals: int | None = None,
    ) -> int:
        """The number of a new row; its caches hold the first `known` prompt tokens."""
        uid, self._numbers = self._numbers, self._numbers + 1
        row = Row(
            uid, prompt[known:], prompt[:known], sampler, processors, max_tokens, rivals=rivals
        )
        min(self._lanes, key=len).add(row, caches)
        return uid

    def drop(self, uids: set[int]) -> None:
        """End rows now, wherever they are."""
        if any(lane.ends_with(uids) for lane in self._lanes):
            # What was sent must be taken, or it would be read as part of the next message.
            self._settle()
        for lane in self._lanes:
            if not uids.isdisjoint(lane.uids):
                lane.drop(uids)

    def _settle(self) -> None:
        """Have all that is under way come in, in the order in which it was sent.

        Rank 0 hears of the tokens of all lanes over one line, and only when it looks: to look for
        those of one lane first would give it those of another.
        """
        for number in self._launched:
            self._lanes[number].settle()

    def kept(self, uid: int) -> Kept:
        """What is computed of a row so far."""
        return next(lane for lane in self._lanes if uid in lane.uids).kept(uid)

    def balance(self) -> None:
        """Give an empty lane half of the fullest one's rows, so that no stage idles."""
        if len(self._lanes) == 1:
            return
        empty = next((lane for lane in self._lanes if not len(lane)), None)
        fullest = max(self._lanes, key=lambda lane: len(lane.movable))
        uids = fullest.movable
        if empty is not None and len(uids) > 1:
            self._settle()
            fullest.give(set(uids[len(uids) // 2 :]), empty)

    def turn(self) -> int:
        """The lane whose turn it is: of those that have rows, the one that waits longest.

        So tokens are also looked for in the order in which they were sent.
        """
        return next((number for number in self._launched if len(self._lanes[number])), 0)

    def prefill_size(self, lane: int, joining: list[int]) -> tuple[int, int]:
        """How many prompts to read together and how many tokens of each.

        `joining` is what there is to read of prompts that are about to be added.
        """
        if not (self._lanes[lane].prompts or joining):
            return 0, 0
        unread = [*self._lanes[lane].unread, *joining]
        rows = self._pacer.rows(unread)
        return rows, self._pacer.step(min(rows, len(unread)))

    def reads(self, lane: int) -> bool:
        """Whether this lane has prompts to read."""
        return self._lanes[lane].prompts > 0

    def decode(self, lane: int) -> list[Drawn]:
        """One token for every decoding row of the lane.

        A first token does not wait for the prompts of others. In a pipeline it does: there the
        other stages would have nothing to do meanwhile.
        """
        self._launched.remove(lane)
        self._launched.append(lane)
        here = self._lanes[lane]
        # Beside other work a step's share of the time is not known.
        steady, self._steady = self._steady and here.steps, True
        started = time.perf_counter()
        drawn = here.decode()
        if drawn and steady:
            self._pacer.decoded(time.perf_counter() - started)
        if len(self._lanes) == 1 and here.prompts and here.owes:
            drawn += here.first_tokens()
        return drawn

    def read_prompts(self, lane: int, rows: int, size: int) -> list[Progress]:
        """One piece of every prompt of the lane."""
        started = time.perf_counter()
        self._steady = False
        here = self._lanes[lane]
        before = sum(here.unread)
        progress = here.read_prompts(rows, size)
        self._pacer.observe(before - sum(here.unread), time.perf_counter() - started)
        return progress


def run_alone(batch: Batch, uid: int, tokens: int) -> None:
    """Give an only row its tokens, then drop it. For warm-up, on all ranks alike."""
    while batch.reads(0):
        batch.read_prompts(0, 1, 1 << 20)
    drawn = 0
    while drawn < tokens:
        drawn += len(batch.decode(0))
    batch.drop({uid})
