"""Weights unpacked to float32: who decides it, what it needs, and that it is promised."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from skulkd.placement.candidates import PlacementCandidate, PlanInputs, cluster_of
from skulkd.placement.memory import (
    FLOOR_BYTES,
    KV_BUDGET_TOKENS,
    context_token_limit,
    float32_need,
    need_of,
)
from skulkd.placement.orders import (
    CreateOrder,
    NodeFacts,
    PlaceOrder,
    decide_create,
    decide_place,
    with_facts,
)
from skulkd.placement.planner import PlacementPlan, plan
from skulkd.placement.promises import promised_bytes, shares_of
from skulkd.placement.records import lost_move, moved, record_of
from skulkd.placement.repairs import replanned
from skulkd.placement.shape import ModelDimensions, float32_growth, shape_from_config
from skulkd.placement.wish import Wish
from skulkd.wire.base import Memory
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.machine import MemoryUsage
from skulkd.wire.state import State
from skulkd.wire.topology import Topology
from tests.placement.builders import GIB, a_card, meshed

A, B = NodeId("a"), NodeId("b")
PACKED = Fraction(32) / Fraction(9, 2)
HALF = Fraction(1, 2)
CONTEXT = 2 * KV_BUDGET_TOKENS
CARD = a_card(1, quantization="4bit", context_length=CONTEXT)
PER_TOKEN = 2 * 32 * 8 * 128 * 4
STORED = need_of(CARD).total_bytes
UNPACKED = float32_need(CARD, PACKED).total_bytes
WITH_CONTEXT = float32_need(CARD, PACKED, tokens=CONTEXT).total_bytes


def memory(free: int, total: int = 1024 * GIB) -> MemoryUsage:
    none = Memory()
    return MemoryUsage(
        ram_total=Memory.of(total),
        ram_available=Memory.of(free),
        swap_total=none,
        swap_available=none,
    )


def a_cpu(name: NodeId, free: int, mode: Any = "auto") -> PlacementCandidate:
    return PlacementCandidate(name, memory(free), dequantize=mode)


def planned(*nodes: PlacementCandidate, card: Any = CARD, **wish: Any) -> PlacementPlan:
    return plan(Wish(card, min_nodes=len(nodes), **wish), meshed(*nodes))


def test_unpacked_weights_and_their_keys_and_values_are_float32() -> None:
    need = float32_need(CARD, PACKED)
    assert need.weights_bytes == -(-GIB * 64 // 9)
    assert need.kv_bytes == PER_TOKEN * KV_BUDGET_TOKENS
    assert need.overhead_bytes == pytest.approx(need.weights_bytes * 0.3, abs=1)
    assert WITH_CONTEXT - UNPACKED == PER_TOKEN * (CONTEXT - KV_BUDGET_TOKENS)
    half = float32_need(CARD, PACKED, HALF)
    assert 2 * (half.total_bytes - FLOOR_BYTES) == pytest.approx(UNPACKED - FLOOR_BYTES, abs=6)


@pytest.mark.parametrize(
    ("free", "mode", "unpacked"),
    [
        pytest.param(WITH_CONTEXT + 1, "auto", True, id="just fits with the whole context"),
        pytest.param(WITH_CONTEXT, "auto", False, id="just does not"),
        pytest.param(UNPACKED + 1, "on", True, id="on: a shorter context will do"),
        pytest.param(UNPACKED, "on", False, id="on: just does not fit"),
        pytest.param(512 * GIB, "off", False, id="off"),
    ],
)
def test_a_plan_is_unpacked_where_the_node_has_room_for_it(
    free: int, mode: str, unpacked: bool
) -> None:
    found = planned(a_cpu(A, free, mode))
    assert found.unpacked is unpacked
    assert found.ranks[0].need.total_bytes == (UNPACKED if unpacked else STORED)
    assert found.context_tokens == CONTEXT


def test_with_on_the_context_becomes_as_short_as_float32_needs_it() -> None:
    total = (UNPACKED + PER_TOKEN * 100) * 4 // 3 + 1
    alike = [
        PlacementCandidate(A, memory(total, total), dequantize=mode) for mode in ("auto", "on")
    ]
    packed, unpacked = (planned(node) for node in alike)
    assert (packed.unpacked, packed.context_tokens) == (False, CONTEXT)
    assert (unpacked.unpacked, unpacked.context_tokens) == (True, KV_BUDGET_TOKENS + 100)


@pytest.mark.parametrize("modes", [("auto", "off"), ("off", "on"), ("off", "off")])
def test_one_node_that_does_not_unpack_keeps_all_ranks_packed(modes: tuple[str, str]) -> None:
    found = planned(
        *(a_cpu(node, 512 * GIB, mode) for node, mode in zip((A, B), modes, strict=True))
    )
    assert not found.unpacked
    assert {rank.need for rank in found.ranks} == {need_of(CARD, HALF)}


def test_one_node_without_room_keeps_all_ranks_packed() -> None:
    half = float32_need(CARD, PACKED, HALF, tokens=CONTEXT).total_bytes
    wish = {"sharding": "Tensor"}
    assert planned(a_cpu(A, half + 1), a_cpu(B, 512 * GIB), **wish).unpacked
    assert not planned(a_cpu(A, half), a_cpu(B, 512 * GIB), **wish).unpacked


def test_what_is_float32_already_or_unknown_is_never_unpacked() -> None:
    for label in ("fp32", "", "MXFP4"):
        card = CARD.model_copy(update={"quantization": label})
        assert not planned(a_cpu(A, 512 * GIB, "on"), card=card).unpacked


@pytest.mark.parametrize(
    ("config", "label", "growth"),
    [
        pytest.param({"quantization": {"bits": 4, "group_size": 64}}, "", PACKED, id="4 bits"),
        pytest.param({"quantization": {"bits": 4}}, "", PACKED, id="the usual group"),
        pytest.param(
            {"quantization": {"bits": 8, "group_size": 32}}, "4bit", Fraction(32, 9), id="files win"
        ),
        pytest.param({"torch_dtype": "bfloat16"}, "", Fraction(2), id="half precision"),
        pytest.param({"text_config": {"dtype": "float32"}}, "", None, id="float32"),
        pytest.param({"quantization": {"mode": "odd"}}, "ODD", None, id="unknown packing"),
        pytest.param({}, "", None, id="nothing said"),
        pytest.param({}, "4bit", PACKED, id="only the card says 4 bits"),
        pytest.param({}, "bf16", Fraction(2), id="only the card says half precision"),
        pytest.param({}, "0bit", None, id="a label that makes no sense"),
    ],
)
def test_files_or_else_the_card_say_how_much_larger_weights_become(
    config: dict[str, Any], label: str, growth: Fraction | None
) -> None:
    card = a_card(1, quantization=label)
    assert float32_growth(card, shape_from_config(config)) == growth


def test_a_gguf_file_is_not_unpacked() -> None:
    gguf = CARD.model_copy(update={"gguf_file": "a.gguf"})
    assert float32_growth(gguf, ModelDimensions(weight_bits=4)) is None


def a_state(**free: int) -> State:
    nodes = [NodeId(name) for name in free]
    return State(
        topology=Topology(nodes=nodes),
        node_memory={NodeId(name): memory(amount) for name, amount in free.items()},
    )


def an_order(name: str, mode: Any = "auto") -> PlaceOrder:
    news = {node: NodeFacts(dequantize=mode) for node in (A, B)}
    return PlaceOrder(instance_id=InstanceId(name), card=CARD, news=news)


def test_two_placements_in_a_row_are_not_given_the_same_memory() -> None:
    """The second one fits by stored size only because it knows what the first one will take."""
    free = WITH_CONTEXT + UNPACKED
    state = a_state(a=free)
    first = decide_place(an_order("one"), state, PlanInputs()).instance
    assert record_of(first).unpacked
    state = state.model_copy(update={"instances": {first.instance_id: first}})
    assert promised_bytes(state) == {A: UNPACKED}
    second = decide_place(an_order("two"), state, PlanInputs()).instance
    assert not record_of(second).unpacked, "one byte more would be needed"
    both = {one.instance_id: one for one in (first, second)}
    promised = promised_bytes(state.model_copy(update={"instances": both}))
    assert promised == {A: UNPACKED + STORED}
    assert promised[A] <= free
    roomier = a_state(a=free + 1).model_copy(update={"instances": {first.instance_id: first}})
    assert record_of(decide_place(an_order("two"), roomier, PlanInputs()).instance).unpacked


def test_an_instance_given_whole_is_decided_like_a_planned_one() -> None:
    for free in (WITH_CONTEXT, WITH_CONTEXT + 1):
        state, order = a_state(a=free), an_order("one")
        planned_one = decide_place(order, state, PlanInputs()).instance
        # As a client sends it back: without a record, or with one of its own.
        for record in (None, record_of(planned_one).model_copy(update={"unpacked": True})):
            given = planned_one.model_copy(update={"record": record})
            created = decide_create(
                CreateOrder(instance=given, news=order.news), state, PlanInputs()
            ).instance
            assert record_of(created).unpacked is (free > WITH_CONTEXT)
            assert created.context_token_limit == planned_one.context_token_limit
            assert list(shares_of(created)) == list(shares_of(planned_one))


@pytest.mark.parametrize("fits", [True, False])
def test_a_move_decides_anew(fits: bool) -> None:
    old = decide_place(an_order("one"), a_state(a=512 * GIB), PlanInputs()).instance
    assert record_of(old).unpacked
    state = a_state(b=WITH_CONTEXT + 1 if fits else WITH_CONTEXT)
    inputs = with_facts(PlanInputs(), an_order("one").news)
    new = replanned(old, state, inputs)
    assert record_of(new).unpacked is fits
    _, kept = moved(old, new, lost_move(old, new, {}, "gone"))
    assert record_of(kept).unpacked is fits
    assert record_of(kept).moves


def test_a_node_that_says_nothing_of_it_does_not_unpack() -> None:
    order = PlaceOrder(instance_id=InstanceId("one"), card=CARD)
    cluster = cluster_of(a_state(a=512 * GIB), CARD.model_id, with_facts(PlanInputs(), {}))
    assert [node.dequantize for node in cluster.nodes] == ["off"]
    assert not record_of(decide_place(order, a_state(a=512 * GIB), PlanInputs()).instance).unpacked


def test_the_context_of_a_card_bounds_unpacked_weights_too() -> None:
    short = CARD.model_copy(update={"context_length": 100})
    assert context_token_limit(short, [], growth=PACKED) == 100
