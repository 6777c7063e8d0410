"""Large matrices are computed on several cores, and nothing else changes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedLinear, quantize

from skulkd.runner.cpu.cores import cores_here
from skulkd.runner.cpu.panels import rearrange
from skulkd.runner.cpu.spread import PART_S, Pace, SpreadLinear, bounds, spread
from skulkd.runner.group.group import RankGroup
from skulkd.runner.model.load import ShardRange, load
from skulkd.runner.protocol import Phase
from skulkd.store.cards.toml import card_from_toml
from tests.runner.rank_group import MakeGroup
from tests.runner.runner_process import DEADLINE_S, Runner

ALWAYS = 0.0
WIDE, DEEP = 320, 64


class Head(Module):
    """A model that is one matrix, with what `call` names to compute it."""

    def __init__(self, inner: Module, call: str) -> None:
        super().__init__()
        self.inner = inner
        self._call = call

    def __call__(self, inputs: mx.array) -> mx.array:
        result: mx.array = getattr(self.inner, self._call)(inputs)
        return result


MATRICES: dict[str, Callable[[], Head]] = {
    "plain": lambda: Head(Linear(DEEP, WIDE, bias=False), "__call__"),
    "with a bias": lambda: Head(Linear(DEEP, WIDE), "__call__"),
    "tied to the embedding": lambda: Head(Embedding(WIDE, DEEP), "as_linear"),
    "four bits": lambda: _packed(Head(Linear(DEEP, WIDE), "__call__"), "affine"),
    "four bits, tied": lambda: _packed(Head(Embedding(WIDE, DEEP), "as_linear"), "affine"),
    "four bits without biases": lambda: _packed(Head(Linear(DEEP, WIDE), "__call__"), "mxfp4"),
    "in panels": lambda: _in_panels(Head(Linear(DEEP, WIDE), "__call__")),
    "in panels, tied": lambda: _in_panels(Head(Embedding(WIDE, DEEP), "as_linear")),
    "the last panel not full": lambda: _in_panels(Head(Linear(DEEP, WIDE + 7), "__call__")),
    "not a whole number of blocks": lambda: Head(Linear(DEEP, WIDE + 7), "__call__"),
}


def _in_panels(head: Head, width: int = 64) -> Head:
    rearrange(head.inner, width)
    return head


def _packed(head: Head, mode: str) -> Head:
    quantize(head, group_size=32, bits=4, mode=mode)
    assert "scales" in head.inner
    return head


@pytest.mark.parametrize("cores", [2, 3, 5])
@pytest.mark.parametrize("name", list(MATRICES))
def test_a_matrix_in_parts_gives_the_same_numbers(name: str, cores: int) -> None:
    head = MATRICES[name]()
    mx.eval(head.parameters())
    inputs = [mx.random.normal((1, 1, DEEP)), mx.random.normal((3, 7, DEEP))]
    expected = [head(each) for each in inputs]
    mx.eval(inputs, expected)
    assert spread([head], cores, ALWAYS) == cores
    for each, whole in zip(inputs, expected, strict=True):
        assert mx.array_equal(head(each), whole).item()


def test_the_parts_are_on_streams_of_their_own_and_take_no_memory() -> None:
    head = Head(Linear(1024, 1024), "__call__")
    mx.eval(head.parameters())
    mx.synchronize()
    before = mx.get_active_memory()
    spread([head], 4, ALWAYS)
    most, some = head.inner.cuts
    assert [len(most.parts), len(some.parts)] == [3, 1]
    own = mx.default_stream(mx.default_device())
    assert len({str(own), *(str(stream) for stream, _ in most.parts)}) == 4
    # A copy of the matrix would be four megabytes.
    assert mx.get_active_memory() - before < 1 << 20


def test_other_cores_do_work() -> None:
    """Read from the kernel: two threads besides this one get processor time."""
    head = Head(Linear(1024, 2048), "__call__")
    inputs = mx.ones((8, 1024))
    mx.eval(head.parameters(), inputs)
    spread([head], 2, ALWAYS)
    before = _busy()
    ends = time.monotonic() + DEADLINE_S
    while len([thread for thread, took in _busy().items() if took > before.get(thread, 0.0)]) < 2:
        assert time.monotonic() < ends
        mx.eval(head(inputs))


def _busy() -> dict[int, float]:
    """Processor time of every thread but this one."""
    threads = psutil.Process().threads()
    return {one.id: one.user_time for one in threads if one.id != threading.get_native_id()}


@pytest.mark.parametrize(
    ("cores", "part_s", "sizes"),
    [
        (1, ALWAYS, []),
        (2, 1e9, []),  # nothing ever takes so long
        (2, ALWAYS, [1]),
        (4, ALWAYS, [3, 1]),
        (6, ALWAYS, [5, 3, 1]),
    ],
)
def test_what_does_not_pay_stays_whole(cores: int, part_s: float, sizes: list[int]) -> None:
    head = Head(Linear(DEEP, WIDE), "__call__")
    assert spread([head], cores, part_s) == (sizes[0] + 1 if sizes else 1)
    assert isinstance(head.inner, SpreadLinear) is bool(sizes)
    assert [len(cut.parts) for cut in vars(head.inner).get("cuts", [])] == sizes


def test_more_rows_use_more_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = DEEP * WIDE
    monkeypatch.setattr(
        "skulkd.runner.cpu.spread._measured", lambda *_: Pace(0.0, PART_S / weights)
    )
    head = Head(Linear(DEEP, WIDE), "__call__")
    spread([head], 4)
    used = [(cut.least // DEEP, len(cut.parts) + 1) for cut in head.inner.cuts]
    assert used == [(4, 4), (2, 2)]
    # One row is too little for any: then it is the plain module that computes.
    head.inner.cuts = [cut._replace(own=_refuse) for cut in head.inner.cuts]
    mx.eval(head(mx.ones((1, DEEP))))
    with pytest.raises(AssertionError, match="in parts"):
        head(mx.ones((2, DEEP)))


def _refuse(_: mx.array) -> mx.array:
    raise AssertionError("computed in parts")


seconds = st.floats(1e-7, 1.0)


@given(st.integers(1, 1 << 30), seconds, seconds, seconds)
def test_a_pace_tells_from_how_many_rows_on_work_takes_so_long(
    weights: int, one_s: float, more_s: float, work_s: float
) -> None:
    pace = Pace.of(weights, one_s, one_s + 7 * more_s, 8)
    rows = pace.rows(weights, work_s)
    assert rows is not None

    def takes_s(rows: int) -> float:
        return weights * (pace.once_s + pace.row_s * rows)

    assert takes_s(rows) >= work_s * (1 - 1e-9)
    assert rows == 1 or takes_s(rows - 1) <= work_s * (1 + 1e-9)


def test_a_pace_that_rows_do_not_change_pays_always_or_never() -> None:
    pace = Pace.of(1000, 0.5, 0.4, 8)
    assert (pace.rows(1000, 0.4), pace.rows(1000, 0.6)) == (1, None)


@given(st.integers(1, 5000), st.integers(2, 9))
def test_parts_hold_every_output_once(outputs: int, parts: int) -> None:
    edges = bounds(outputs, parts)
    assert (edges[0], edges[-1], len(edges)) == (0, outputs, parts + 1)
    sizes = [end - begin for begin, end in pairwise(edges)]
    assert all(edge % 32 == 0 for edge in edges[:-1])
    assert max(sizes) - min(sizes) < 3 * 32


def test_a_model_in_parts_says_what_it_says_whole(tiny: Path) -> None:
    card = card_from_toml((tiny / "card.toml").read_text(), "card.toml")
    part = ShardRange(RankGroup(), 0, card.n_layers)
    model = load(tiny, card, part=part, trust_remote_code=False, on_layer=lambda *_: None).model
    prompts = mx.array([[3 + (7 * at + row) % 200 for at in range(19)] for row in range(4)])
    whole = model(prompts)
    mx.eval(whole)
    assert spread([model], 3, ALWAYS) == 3
    kinds = {type(module) for module in model.modules()}
    assert kinds.isdisjoint({Linear, QuantizedLinear, Embedding})
    assert mx.array_equal(model(prompts), whole).item()


@pytest.mark.parametrize(
    ("wanted", "ranks", "cores"),
    [(0, 1, 8), (3, 1, 3), (10, 1, 10), (64, 1, 12), (0, 2, 6), (0, 12, 1), (0, 13, 1), (3, 12, 3)],
)
def test_a_rank_computes_on_its_share_of_the_cores_or_as_it_is_told(
    monkeypatch: pytest.MonkeyPatch, wanted: int, ranks: int, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    assert cores_here(wanted, ranks) == cores


def test_a_runner_says_how_many_cores_it_uses_and_ends_cleanly(
    fork: Callable[..., Runner], tiny: Path
) -> None:
    said: list[str] = []
    for cores in (1, 0):
        runner = fork()
        runner.configure(tiny, cores=cores)
        runner.become_ready()
        assert _used(runner) in range(1, (cores or cores_here()) + 1)
        said.append(runner.chat("tell me " * 60).text())
        assert runner.stop() == 0
    assert said[0] == said[1]


def _used(runner: Runner) -> Any:
    """The cores that a ready runner says it uses."""
    runner.until(Phase, lambda m: m.entry.event == "runner_ready")
    loaded = next(p for p in runner.entries() if p.entry.event == "loaded")
    return loaded.entry.attrs["cores"]


@pytest.mark.parametrize("tensor", [False, True], ids=["pipeline", "tensor"])
def test_ranks_on_several_cores_say_what_they_say_on_one(
    group: MakeGroup, tiny: Path, tensor: bool
) -> None:
    if cores_here() < 2:
        pytest.skip("one core")
    said: list[str] = []
    for cores in (1, 2):
        # With a fast BLAS a matrix of this model is too small to share.
        several = group(2, tiny, tensor=tensor, cores=cores, prefill_step=256, blas="off")
        assert [_used(rank) for rank in several.ranks] == [cores] * 2
        said += [several.chat("tell me about the sea " * n).text() for n in (40, 60)]
        assert several.stop() == [0, 0]
    assert said[:2] == said[2:]


def test_ranks_on_one_machine_share_its_cores(group: MakeGroup, tiny: Path) -> None:
    several = group(2, tiny)
    share = max(1, cores_here() // 2)
    assert all(_used(rank) in range(1, share + 1) for rank in several.ranks)
