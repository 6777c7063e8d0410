"""The planner for one node: what it makes, what it refuses and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.placement.fresh import RESERVED_PORTS, Fresh, make_fresh
from skulkd.placement.memory import need_of, usable_bytes
from skulkd.placement.planner import Candidate, Wish, candidates_of, choose_node, place
from skulkd.placement.refusals import (
    AllExcluded,
    DoesNotFit,
    InfoPending,
    NotSupported,
    Refusal,
    TooFewNodes,
    UnknownNode,
)
from skulkd.wire.cards import PlacementCardConfig
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.instances import Host
from skulkd.wire.shards import PipelineShardMetadata
from skulkd.wire.state import State
from skulkd.wire.topology import Topology
from tests.placement.builders import GIB, a_card, a_node, memory_of

FRESH = Fresh(InstanceId("inst"), (RunnerId("run"),), 50_000)
BLIND = Candidate(NodeId("node-b"), None)


def test_a_model_that_fits_becomes_an_instance_of_one_rank() -> None:
    card = a_card(4)
    instance = place(Wish(card), [a_node()], FRESH)
    assignments = instance.shard_assignments
    assert instance.instance_id == "inst"
    assert assignments.model_id == card.model_id
    assert assignments.node_to_runner == {"node-a": "run"}
    assert assignments.runner_to_shard == {
        "run": PipelineShardMetadata(
            model_card=card,
            device_rank=0,
            world_size=1,
            resolved_backend="mlx",
            start_layer=0,
            end_layer=32,
            n_layers=32,
        )
    }
    assert instance.hosts_by_node == {"node-a": [Host(ip="0.0.0.0", port=50_000)]}
    assert instance.ephemeral_port == 50_000
    assert instance.context_token_limit == 53_657


def test_tensor_on_one_node_becomes_a_pipeline_of_one() -> None:
    instance = place(Wish(a_card(4), sharding="Tensor"), [a_node()], FRESH)
    shards = instance.shard_assignments.runner_to_shard.values()
    assert [type(shard) for shard in shards] == [PipelineShardMetadata]


def test_the_node_with_most_free_memory_is_chosen() -> None:
    nodes = [a_node("small", 16), a_node("large", 64, 40), a_node("full", 128, 1)]
    assert choose_node(Wish(a_card(4)), nodes).node_id == "large"


def test_a_required_node_is_chosen_even_when_another_is_freer() -> None:
    nodes = [a_node("small", 16), a_node("large", 64)]
    wish = Wish(a_card(4), required=frozenset({NodeId("small")}))
    assert choose_node(wish, nodes).node_id == "small"


@pytest.mark.parametrize(
    ("wish", "nodes", "refusal", "fragments"),
    [
        pytest.param(
            Wish(a_card(), min_nodes=2), [a_node()], TooFewNodes, ["min_nodes=2"], id="too few"
        ),
        pytest.param(Wish(a_card()), [], TooFewNodes, ["min_nodes=1"], id="empty state"),
        pytest.param(
            Wish(a_card(), excluded=frozenset({NodeId("node-a")})),
            [a_node()],
            AllExcluded,
            ["touch an excluded node", "excluded_nodes"],
            id="all excluded",
        ),
        pytest.param(
            Wish(a_card(), required=frozenset({NodeId("ghost")})),
            [a_node()],
            UnknownNode,
            ["[ghost]"],
            id="unknown node",
        ),
        pytest.param(
            Wish(a_card(), required=frozenset({NodeId("node-a"), NodeId("node-b")})),
            [a_node(), a_node("node-b")],
            NotSupported,
            ["contains all required nodes"],
            id="two required",
        ),
        pytest.param(
            Wish(a_card(placement=PlacementCardConfig(compatible_backends=["llama_cpp-cpu"]))),
            [a_node()],
            NotSupported,
            ["ineligible for this model", "llama_cpp-cpu"],
            id="other backend",
        ),
        pytest.param(
            Wish(a_card(tasks=["TextToImage"])),
            [a_node()],
            NotSupported,
            ["TextToImage"],
            id="not a text model",
        ),
        pytest.param(
            Wish(a_card()), [BLIND], InfoPending, ["Memory info", "[node-b]"], id="no readings"
        ),
        pytest.param(
            Wish(a_card(100)), [a_node(), BLIND], InfoPending, ["[node-b]"], id="perhaps there"
        ),
        pytest.param(
            Wish(a_card(), min_nodes=2),
            [a_node(), a_node("node-b")],
            InfoPending,
            ["retry shortly"],
            id="links unknown",
        ),
        pytest.param(
            Wish(a_card(supports_tensor=False), sharding="Tensor"),
            [a_node()],
            NotSupported,
            ["does not support tensor parallelism", "org/name"],
            id="no tensor",
        ),
        pytest.param(
            Wish(a_card(100, supports_tensor=False), sharding="Tensor"),
            [a_node()],
            DoesNotFit,
            ["No candidate cycle fits"],
            id="memory comes before tensor",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused_with_its_reason(
    wish: Wish, nodes: Sequence[Candidate], refusal: type[Refusal], fragments: list[str]
) -> None:
    with pytest.raises(refusal) as caught:
        place(wish, nodes, FRESH)
    assert type(caught.value) is refusal
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert caught.value.pending == (refusal is InfoPending)


def test_a_refusal_for_memory_shows_the_arithmetic() -> None:
    card = a_card(10, num_key_value_heads=None)
    with pytest.raises(DoesNotFit) as caught:
        place(Wish(card), [a_node(free_gib=14)], FRESH)
    assert str(caught.value) == (
        "No candidate cycle fits org/name (10.0GB weights): [node-a] Pipeline: node-a needs ~13.2GB"
        " (10.0GB weights + 0.0GB KV@8192tok + 3.2GB headroom) but has 12.0GB usable"
        " (the lesser of available RAM and 75% of RAM)"
    )
    short = caught.value.rejected[0].short[0]
    assert (short.need, short.usable_bytes) == (need_of(card), 12 * GIB)
    assert any("skulkctl instances" in hint for hint in caught.value.hints)


def test_the_neighbouring_sizes_of_the_vector_are_admitted_and_refused() -> None:
    node = a_node(free_gib=14)
    assert place(Wish(a_card(8, num_key_value_heads=None)), [node], FRESH)
    with pytest.raises(DoesNotFit):
        place(Wish(a_card(10, num_key_value_heads=None)), [node], FRESH)


def test_every_node_without_room_is_named() -> None:
    with pytest.raises(DoesNotFit) as caught:
        place(Wish(a_card(100)), [a_node("one"), a_node("two")], FRESH)
    assert [cycle.node_ids for cycle in caught.value.rejected] == [("one",), ("two",)]
    assert "one needs" in str(caught.value)
    assert "two needs" in str(caught.value)


def test_nodes_of_the_state_become_candidates_with_their_readings() -> None:
    seen, unread = NodeId("seen"), NodeId("unread")
    state = State(topology=Topology(nodes=[seen, unread]), node_memory={seen: memory_of(16, 8)})
    assert candidates_of(state) == (
        Candidate(seen, memory_of(16, 8)),
        Candidate(unread, None),
    )


def test_names_and_ports_are_new_and_no_port_of_ours() -> None:
    made = [make_fresh(2, taken_ports=range(49152, 65000)) for _ in range(50)]
    assert len({fresh.instance_id for fresh in made}) == 50
    assert len({runner for fresh in made for runner in fresh.runner_ids}) == 100
    assert all(65000 <= fresh.port <= 65535 for fresh in made)
    low = make_fresh(1, taken_ports=set(range(49152, 65536)) - {52414} - RESERVED_PORTS)
    assert low.port == 52414


gibs = st.floats(min_value=0.01, max_value=600)
machines = st.lists(st.tuples(gibs, gibs), min_size=1, max_size=6)


def _nodes(machines: list[tuple[float, float]]) -> list[Candidate]:
    return [a_node(f"n{i}", total, min(total, free)) for i, (total, free) in enumerate(machines)]


def _fits(wish: Wish, nodes: Sequence[Candidate]) -> Any:
    try:
        return choose_node(wish, nodes)
    except DoesNotFit:
        return None


@given(gibs, machines)
def test_no_node_is_ever_promised_more_than_it_can_give(
    gib: float, machines: list[tuple[float, float]]
) -> None:
    card = a_card(gib)
    chosen = _fits(Wish(card), _nodes(machines))
    if chosen is not None:
        assert need_of(card).total_bytes < usable_bytes(chosen.memory)


@given(gibs, machines, st.floats(min_value=0, max_value=100))
def test_more_free_memory_never_turns_a_yes_into_a_no(
    gib: float, machines: list[tuple[float, float]], more: float
) -> None:
    wish = Wish(a_card(gib))
    if _fits(wish, _nodes(machines)) is not None:
        grown = [(total + more, free + more) for total, free in machines]
        assert _fits(wish, _nodes(grown)) is not None
