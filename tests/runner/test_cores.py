"""Prompts that come together are read on several cores, and nothing else changes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.runner.batch import Batch, rehearse
from skulkd.runner.caches import fresh_caches
from skulkd.runner.group import SoloGroup
from skulkd.runner.helpers import Helpers
from skulkd.runner.lane import share_out
from skulkd.runner.load import LoadedModel, Part, load
from skulkd.runner.pacing import CORE_S, PrefillPacer
from skulkd.runner.rows import Row
from skulkd.runner.sampling import greedy
from skulkd.runner.seats import Next, Seat
from skulkd.store.card_toml import card_from_toml

# Of different lengths, so that rows are padded, too.
PROMPTS = [[3 + (7 * at + row) % 200 for at in range(9 + 3 * row)] for row in range(5)]
TOKENS = 6


@pytest.fixture(scope="module")
def loaded(tiny: Path) -> LoadedModel:
    card = card_from_toml((tiny / "card.toml").read_text(), "card.toml")
    part = Part(SoloGroup(), 0, card.n_layers)
    return load(tiny, card, part=part, trust_remote_code=False, on_layer=lambda *_: None)


class Watched:
    """A seat that notes which threads read prompts."""

    knows = True

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.readers: set[str] = set()

    def launch(self, inputs: Next, caches: list[Any], rows: list[Row]) -> Next:
        return self._seat.launch(inputs, caches, rows)

    def prefill(self, tokens: mx.array, caches: list[Any]) -> tuple[tuple[str, Any], ...]:
        self.readers.add(threading.current_thread().name)
        return self._seat.prefill(tokens, caches)


def add(
    loaded: LoadedModel, batch: Batch, prompt: list[int], known: int = 0, caches: Any = None
) -> int:
    return batch.add(
        prompt, known=known, caches=caches or fresh_caches(loaded.model), max_tokens=TOKENS,
        sampler=greedy, processors=[],
    )  # fmt: skip


def answers(loaded: LoadedModel, cores: int, size: int) -> tuple[dict[int, list[int]], set[str]]:
    """What every prompt is answered with, and who read them."""
    seat = Watched(loaded.seat)
    pacer = PrefillPacer(cores=cores)
    pacer.observe(100, 1000.0)  # so slow that every core is worth it
    batch = Batch(seat, lanes=1, pacer=pacer)
    answered: dict[int, list[int]] = {add(loaded, batch, prompt): [] for prompt in PROMPTS}
    while any(len(tokens) < TOKENS for tokens in answered.values()):
        for drawn in batch.decode(0):
            assert drawn.token is not None
            answered[drawn.uid].append(drawn.token)
        if batch.reads(0):
            batch.read_prompts(0, len(PROMPTS), size)
    batch.close()
    return answered, seat.readers


@pytest.mark.parametrize("size", [4, 100], ids=["in pieces", "whole"])
def test_several_cores_read_what_one_reads(loaded: LoadedModel, size: int) -> None:
    expected, alone = answers(loaded, 1, size)
    found, readers = answers(loaded, 3, size)
    assert {uid: tokens[:TOKENS] for uid, tokens in found.items()} == {
        uid: tokens[:TOKENS] for uid, tokens in expected.items()
    }
    assert len(alone) == 1
    assert len(readers) == 3


def test_who_comes_later_is_read_on_a_free_core(loaded: LoadedModel) -> None:
    seat = Watched(loaded.seat)
    pacer = PrefillPacer(cores=2)
    pacer.observe(100, 1000.0)
    batch = Batch(seat, lanes=1, pacer=pacer)
    add(loaded, batch, PROMPTS[4])
    batch.read_prompts(0, 2, 4)
    assert len(seat.readers) == 1
    add(loaded, batch, PROMPTS[0])
    batch.read_prompts(0, 2, 4)
    batch.close()
    assert len(seat.readers) == 2


def test_the_end_of_prompts_on_two_cores_is_counted_as_read_by_two(loaded: LoadedModel) -> None:
    """Little is left, so that nobody would begin on two cores; these two go on there."""
    counted: list[int] = []

    class Listening(PrefillPacer):
        def observe(self, tokens: int, seconds: float, cores: int = 1) -> None:
            counted.append(cores)

        def worth(self, unread: Any) -> int:
            return 1 if counted else 2

    batch = Batch(loaded.seat, lanes=1, pacer=Listening(cores=2))
    for prompt in PROMPTS[3:]:
        add(loaded, batch, prompt)
    batch.read_prompts(0, 2, 8)
    batch.read_prompts(0, 2, 8)
    batch.close()
    assert counted == [2, 2]


def test_known_beginnings_are_gone_on_with_on_several_cores(loaded: LoadedModel) -> None:
    """What a batch keeps of its rows may not be computed yet, and belongs to the main thread."""
    expected: dict[int, list[list[int]]] = {}
    for cores in (1, 2):
        pacer = PrefillPacer(cores=cores)
        pacer.observe(100, 1000.0)
        batch = Batch(loaded.seat, lanes=1, pacer=pacer)
        for prompt in PROMPTS[:2]:
            add(loaded, batch, prompt)
        while batch.reads(0):
            batch.read_prompts(0, 2, 100)
        batch.decode(0)
        kept = [batch.kept(uid) for uid in (0, 1)]
        batch.drop({0, 1})
        for one in kept:
            add(loaded, batch, [*one.tokens, 5, 6, 7, 8], len(one.tokens), one.copy())
        drawn: dict[int, list[int]] = {2: [], 3: []}
        while any(len(tokens) < TOKENS for tokens in drawn.values()):
            if batch.reads(0):
                batch.read_prompts(0, 2, 100)
            for item in batch.decode(0):
                assert item.token is not None
                drawn[item.uid].append(item.token)
        batch.close()
        expected[cores] = [drawn[uid][:TOKENS] for uid in (2, 3)]
    assert expected[1] == expected[2]


class Forgetful(Watched):
    """A model that keeps an array which only the thread that made it can compute."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._kept: mx.array | None = None

    def prefill(self, tokens: mx.array, caches: list[Any]) -> tuple[tuple[str, Any], ...]:
        super().prefill(tokens, caches)
        kept = mx.ones((2,)) + 1 if self._kept is None else self._kept
        self._kept = kept
        if threading.current_thread() is threading.main_thread():
            return (("prompt", [cache.state for cache in caches]),)
        return (("prompt", [kept + 1, [cache.state for cache in caches]]),)


@pytest.mark.parametrize(("kind", "able"), [(Watched, True), (Forgetful, False)])
def test_a_model_that_cannot_is_read_on_one_core(
    loaded: LoadedModel, kind: type[Watched], able: bool
) -> None:
    batch = Batch(kind(loaded.seat), lanes=1, pacer=PrefillPacer(cores=2))
    uids = {add(loaded, batch, PROMPTS[0]) for _ in range(2)}
    if not able:
        # The main thread must come first, or the array would be the helper's own.
        batch._lanes[0]._helpers.run = _main_first  # type: ignore[method-assign]
    assert rehearse(batch, uids) is able
    assert batch.cores == (2 if able else 1)
    assert len(batch) == 0
    batch.close()


def _main_first(jobs: Any) -> None:
    jobs[0]()
    helpers = Helpers(1)
    try:
        helpers.run([lambda: None, *jobs[1:]])
    finally:
        helpers.close()


def test_what_a_helper_raises_is_raised_when_all_have_ended() -> None:
    ended = threading.Event()

    def fails() -> None:
        raise ValueError("in the helper")

    with pytest.raises(ValueError, match="in the helper"):
        Helpers(2).run([lambda: None, fails, ended.set])
    assert ended.is_set()


@pytest.mark.parametrize(
    ("token_s", "unread", "cores"),
    [
        (None, [10, 10], 1),  # nothing is known
        (CORE_S / 10, [9, 9], 1),
        (CORE_S / 10, [10, 10], 2),
        (CORE_S / 10, [1000], 1),  # one prompt is one stream
        (CORE_S, [100, 100, 100], 3),
        (CORE_S, [100] * 9, 4),
    ],
)
def test_a_core_is_used_when_it_has_enough_to_do(
    token_s: float | None, unread: list[int], cores: int
) -> None:
    pacer = PrefillPacer(cores=4)
    if token_s is not None:
        pacer.observe(100, 100 * token_s)
    assert pacer.worth(unread) == cores
    assert PrefillPacer(cores=1).worth(unread) == 1


def test_what_several_cores_read_does_not_make_a_token_look_cheaper() -> None:
    pacer = PrefillPacer(cores=2)
    pacer.observe(100, 1.0, cores=2)
    assert pacer.worth([3, 2]) == 2
    assert pacer.worth([2, 2]) == 1


@given(st.lists(st.integers(1, 500), max_size=12), st.integers(1, 5))
def test_shares_hold_everything_once_and_none_is_empty(sizes: list[int], shares: int) -> None:
    parts = share_out(sizes, shares)
    assert sorted(at for part in parts for at in part) == list(range(len(sizes)))
    assert len(parts) == min(shares, len(sizes))
    assert all(parts)
    loads = [sum(sizes[at] for at in part) for part in parts]
    assert not loads or max(loads) - min(loads) <= max(sizes)
