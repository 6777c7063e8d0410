"""The rows that are computed together: mlx-lm's BatchGenerator with paced prompt steps.

Knows sequences by number and tokens; knows nothing of requests, text or messages.
"""

# mlx-lm leaves its generator methods untyped.
# mypy: allow-untyped-calls

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mlx_lm.generate import BatchGenerator

from skulkd.runner.caches import shortened
from skulkd.runner.pacing import LARGEST, PrefillPacer
from skulkd.runner.sampling import Processor, Sampler, greedy


@dataclass(frozen=True, slots=True)
class Kept:
    """The caches of a sequence and the tokens they hold."""

    caches: list[Any]
    tokens: list[int]

    def copy(self) -> list[Any]:
        """Caches for one more sequence; what is computed stays shared."""
        return shortened(self.caches, len(self.tokens)) or copy.deepcopy(self.caches)


class Batch:
    """`stop_tokens` end a sequence; the one that did is still delivered."""

    def __init__(
        self, model: Any, *, slots: int, stop_tokens: Iterable[int], pacer: PrefillPacer
    ) -> None:
        self._slots = slots
        self._pacer = pacer
        self._prefilling: set[int] = set()
        self._generator = BatchGenerator(
            model,
            stop_tokens=[[token] for token in sorted(stop_tokens)],
            sampler=greedy,
            completion_batch_size=slots,
            prefill_batch_size=slots,
            prefill_step_size=LARGEST,
        )

    @property
    def prefilling(self) -> bool:
        return bool(self._prefilling)

    def add(
        self,
        prompt: list[int],
        *,
        known: int,
        caches: list[Any],
        max_tokens: int,
        sampler: Sampler,
        processors: list[Processor],
    ) -> int:
        """The number of a new sequence; its caches hold the first `known` prompt tokens."""
        (uid,) = self._generator.insert(
            [prompt[known:]],
            max_tokens=[max_tokens],
            caches=[caches],
            all_tokens=[prompt[:known]],
            samplers=[sampler],
            logits_processors=[processors],
        )
        self._prefilling.add(uid)
        return int(uid)

    def drop(self, uids: list[int]) -> None:
        """End sequences now, wherever they are."""
        self._generator.remove(uids)
        self._prefilling.difference_update(uids)

    def kept(self, uid: int) -> Kept:
        """What is computed of a sequence so far."""
        caches, tokens = self._generator.extract_cache([uid])[uid]
        return Kept(caches, list(tokens))

    def step(self) -> tuple[list[Any], list[Any]]:
        """One token for every decoding row, one chunk for every prompt."""
        if not self._prefilling:
            _, tokens = self._generator.next()
            return [], tokens
        rows = min(self._slots, self._pacer.rows)
        self._generator.prefill_batch_size = rows
        self._generator.prefill_step_size = self._pacer.step(min(rows, len(self._prefilling)))
        with self._generator.stats() as work:
            prompts, tokens = self._generator.next()
        self._pacer.observe(work.prompt_tokens, work.prompt_time)
        self._prefilling.difference_update(item.uid for item in prompts if item.end_of_prompt)
        return prompts, tokens

    def close(self) -> None:
        self._generator.close()


def run_alone(batch: Batch, uid: int) -> int:
    """Step until this sequence ends; the number of its tokens. For warm-up only."""
    count = 0
    while True:
        _, tokens = batch.step()
        for item in tokens:
            if item.uid == uid:
                count += 1
                if item.finish_reason is not None:
                    return count
