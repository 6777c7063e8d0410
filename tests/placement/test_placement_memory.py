"""The memory arithmetic against the vectors of the specification, and its laws."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.placement.candidates import Cluster, PlacementCandidate
from skulkd.placement.memory import (
    WHOLE,
    Share,
    context_token_limit,
    kv_bytes_per_token,
    need_of,
    usable_bytes,
    usable_vram_bytes,
    working_set_bytes,
)
from skulkd.placement.planner import plan
from skulkd.placement.refusals import DoesNotFit
from skulkd.placement.shape import ModelDimensions
from skulkd.placement.wish import Wish
from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard, PlacementCardConfig
from skulkd.wire.ids import NodeId
from skulkd.wire.machine import AcceleratorMetrics
from skulkd.wire.placement import Sharding
from tests.placement.builders import GIB, a_card, a_node, memory_of, meshed


@pytest.mark.parametrize(
    ("card", "gib"),
    [
        pytest.param(a_card(4.5), 7.10, id="32 layers and 8 heads"),
        pytest.param(a_card(40, n_layers=80), 54.75, id="80 layers and 8 heads"),
        pytest.param(a_card(15, num_key_value_heads=None), 19.75, id="heads unknown"),
        pytest.param(a_card(10, num_key_value_heads=None), 13.25, id="10 GiB"),
        pytest.param(a_card(10, num_key_value_heads=None, gguf_file="m.gguf"), 11.25, id="gguf"),
    ],
)
def test_the_need_of_a_model_matches_the_vectors(card: ModelCard, gib: float) -> None:
    assert need_of(card).total_bytes / GIB == pytest.approx(gib, abs=0.005)


def test_a_need_names_its_parts() -> None:
    need = need_of(a_card(4))
    assert need.weights_bytes == 4 * GIB
    assert need.kv_bytes == GIB
    assert need.overhead_bytes == pytest.approx(1.2 * GIB, abs=1)
    assert need.floor_bytes == GIB // 4


def test_keys_and_values_of_one_token_match_the_vector() -> None:
    assert kv_bytes_per_token(a_card()) == 131_072
    assert kv_bytes_per_token(a_card(num_key_value_heads=None)) is None


@pytest.mark.parametrize(
    ("total", "free", "usable"),
    [(16, 15, 12), (64, 9, 9), (16, 14, 12), (16, 0, 0)],
)
def test_usable_memory_is_the_lesser_of_free_and_working_set(
    total: float, free: float, usable: float
) -> None:
    assert usable_bytes(memory_of(total, free)) == usable * GIB


@pytest.mark.parametrize(
    ("ram", "largest"),
    [(16, 8.27), (24, 12.88), (32, 17.50), (64, 35.96), (128, 72.88), (192, 109.81), (512, 294.42)],
)
def test_the_largest_model_for_a_machine_matches_the_vectors(ram: int, largest: float) -> None:
    cluster = meshed(a_node("mac", ram))
    assert plan(Wish(a_card(largest - 0.01)), cluster)
    with pytest.raises(DoesNotFit):
        plan(Wish(a_card(largest + 0.01)), cluster)


def test_the_real_size_of_a_head_counts_when_it_is_known() -> None:
    assert kv_bytes_per_token(a_card(), ModelDimensions(head_dimension=256)) == 262_144
    shape = ModelDimensions(head_dimension=64)
    assert need_of(a_card(4), shape=shape).kv_bytes == GIB // 2
    share = Share(WHOLE, working_set_bytes(memory_of(16)))
    assert context_token_limit(a_card(4), [share], shape) == 2 * 53_657 + 1


@pytest.mark.parametrize(
    ("vram", "gtt", "ram", "free", "gib"),
    [(64, 124, 61, 59, 100.6), (48, 48, 128, 128, 43.2), (48, 0, 16, 1, 43.2)],
    ids=["unified", "discrete", "no mapping"],
)
def test_usable_graphics_memory_matches_the_vectors(
    vram: int, gtt: int, ram: int, free: int, gib: float
) -> None:
    card = AcceleratorMetrics(
        vendor="amd", vram_total_bytes=vram * GIB, vram_used_bytes=0, gtt_total_bytes=gtt * GIB
    )
    usable = usable_vram_bytes(card, memory_of(ram, free))
    assert usable is not None
    assert usable / GIB == pytest.approx(gib, abs=0.05)


def test_graphics_memory_that_is_used_or_shared_with_the_system_does_not_count() -> None:
    used = AcceleratorMetrics(vendor="nvidia", vram_total_bytes=24 * GIB, vram_used_bytes=20 * GIB)
    assert usable_vram_bytes(used, None) == 4 * GIB
    apple = AcceleratorMetrics(vendor="apple", vram_total_bytes=24 * GIB)
    assert usable_vram_bytes(apple, memory_of(24)) is None


def test_the_card_may_bound_the_context() -> None:
    card = a_card(4, placement=PlacementCardConfig(max_context_tokens=1000))
    assert context_token_limit(card, [Share(WHOLE, working_set_bytes(memory_of(16)))]) == 1000


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("sharding", ["Pipeline", "Tensor"])
def test_an_exact_fit_is_refused(ranks: int, sharding: Sharding) -> None:
    need = need_of(a_card(4), Fraction(1, ranks)).total_bytes
    wish = Wish(a_card(4), sharding=sharding, min_nodes=ranks)

    def cluster(free: int) -> Cluster:
        memory = memory_of(64).model_copy(update={"ram_available": Memory.of(free)})
        return meshed(*(PlacementCandidate(NodeId(f"n{i}"), memory) for i in range(ranks)))

    with pytest.raises(DoesNotFit):
        plan(wish, cluster(need))
    assert plan(wish, cluster(need + 4)), "three parts are rounded up, each by less than a byte"


@pytest.mark.parametrize(
    ("card", "ram", "tokens"),
    [
        pytest.param(a_card(4), 16, 53_657, id="4 GiB on 16"),
        pytest.param(a_card(4.5), 16, 48_332, id="4.5 GiB on 16"),
        pytest.param(a_card(64), 16, 0, id="weights alone are too much"),
        pytest.param(a_card(4, context_length=8000), 16, 8000, id="the card is smaller"),
        pytest.param(a_card(4, num_key_value_heads=None), 16, None, id="nothing is known"),
        pytest.param(
            a_card(4, num_key_value_heads=None, context_length=4096), 16, 4096, id="only the card"
        ),
        pytest.param(
            a_card(4, num_key_value_heads=None, gguf_file="m.gguf"), 16, 8192, id="gguf is capped"
        ),
    ],
)
def test_the_context_ceiling_matches_the_vectors(
    card: ModelCard, ram: int, tokens: int | None
) -> None:
    share = Share(WHOLE, working_set_bytes(memory_of(ram, free_gib=1)))
    assert context_token_limit(card, [share]) == tokens


def test_the_smallest_node_sets_the_context_ceiling() -> None:
    half = Fraction(1, 2)
    shares = [
        Share(half, working_set_bytes(memory_of(16))),
        Share(half, working_set_bytes(memory_of(8))),
    ]
    assert context_token_limit(a_card(4), shares) == context_token_limit(a_card(4), shares[1:])


sizes = st.floats(min_value=0.001, max_value=1000)
parts = st.fractions(min_value=Fraction(1, 64), max_value=1)


@given(sizes, parts)
def test_a_need_covers_weights_overhead_cache_and_floor(gib: float, part: Fraction) -> None:
    card = a_card(gib)
    weights = card.storage_size.in_bytes * part
    assert need_of(card, part).total_bytes >= weights * Fraction(13, 10) + 2**30 * part + 2**28


@given(sizes, sizes, parts)
def test_a_larger_model_never_needs_less(one: float, other: float, part: Fraction) -> None:
    small, large = sorted((one, other))
    assert need_of(a_card(small), part).total_bytes <= need_of(a_card(large), part).total_bytes


@given(sizes, st.floats(min_value=1, max_value=1000), st.floats(min_value=1, max_value=1000))
def test_more_memory_never_lowers_the_ceiling(gib: float, one: float, other: float) -> None:
    less, more = (
        context_token_limit(a_card(gib), [Share(WHOLE, working_set_bytes(memory_of(ram)))])
        for ram in sorted((one, other))
    )
    assert less is not None
    assert more is not None
    assert less <= more
