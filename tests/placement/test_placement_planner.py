"""The planner: what it makes on one node and on many, against the vectors, and its laws."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkd.placement.built import instance_of, place
from skulkd.placement.candidates import Cluster, PlacementCandidate
from skulkd.placement.fresh import RESERVED_PORTS, Fresh, make_fresh
from skulkd.placement.layers import keep_within, split_layers
from skulkd.placement.memory import need_of
from skulkd.placement.planner import PlacementPlan, plan, plans_by_size
from skulkd.placement.refusals import DoesNotFit, NotDivisible, Refusal
from skulkd.placement.shape import ModelDimensions, shape_from_config, tensor_obstacles
from skulkd.placement.wish import Wish
from skulkd.wire.cards import PlacementCardConfig
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.instances import Host, MlxJacclInstance, MlxRingInstance
from skulkd.wire.machine import AcceleratorMetrics
from skulkd.wire.shards import PipelineShardMetadata, TensorShardMetadata
from tests.placement.builders import GIB, a_card, a_node, linked, meshed, with_rdma

FRESH = Fresh(InstanceId("inst"), (RunnerId("run"),), 50_000)


def names(found: PlacementPlan) -> list[str]:
    return list(found.node_ids)


def layers(found: PlacementPlan) -> list[tuple[int, int]]:
    return [(rank.start_layer, rank.end_layer) for rank in found.ranks]


def test_a_model_that_fits_becomes_an_instance_of_one_rank() -> None:
    card = a_card(4)
    instance = place(Wish(card), [a_node()], FRESH)
    assert isinstance(instance, MlxRingInstance)
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


def test_tensor_and_rdma_on_one_node_become_a_pipeline_of_one_ring() -> None:
    found = plan(Wish(a_card(4), sharding="Tensor", meta="MlxJaccl"), meshed(a_node()))
    assert (found.sharding, found.meta, len(found.ranks)) == ("Pipeline", "MlxRing", 1)


def test_the_node_with_most_free_memory_is_chosen() -> None:
    nodes = [a_node("small", 16), a_node("large", 64, 40), a_node("full", 128, 1)]
    assert names(plan(Wish(a_card(4)), meshed(*nodes))) == ["large"]


def test_a_node_that_has_the_files_is_chosen_before_a_freer_one() -> None:
    nodes = [a_node("staged", 16, staged=1.0), a_node("tiny", 4, staged=1.0), a_node("large", 64)]
    assert names(plan(Wish(a_card(4)), meshed(*nodes))) == ["staged"]


def test_a_required_node_is_chosen_even_when_another_is_freer() -> None:
    cluster = meshed(a_node("small", 16), a_node("large", 64))
    wish = Wish(a_card(4), required=frozenset({NodeId("small")}))
    assert names(plan(wish, cluster)) == ["small"]
    both = Wish(a_card(4), required=cluster.node_ids)
    assert sorted(names(plan(both, cluster))) == ["large", "small"]


@pytest.mark.parametrize(
    ("memory", "expected"),
    [((5, 5, 10), [3, 3, 6]), ((5, 5, 5), [4, 4, 4]), ((3.12, 4.68, 10.92), [2, 3, 7])],
)
def test_layers_are_split_as_in_the_vectors(memory: Sequence[float], expected: list[int]) -> None:
    assert split_layers(12, [int(gib * GIB) for gib in memory]) == expected


def test_every_rank_has_a_layer_and_there_is_no_split_without_enough() -> None:
    assert split_layers(4, [1, 1, 1000]) == [1, 1, 2]
    assert split_layers(2, [1, 1, 1]) is None
    assert split_layers(12, [0, 0]) is None


def test_layers_move_to_where_there_is_room() -> None:
    assert keep_within([3, 3, 6], [3, 9, 5]) == [3, 4, 5]
    assert keep_within([3, 3, 6], [3, 3, 5]) is None
    assert keep_within([1, 5], [0, 9]) is None


def test_the_uneven_pair_of_the_vectors_is_admitted() -> None:
    cluster = meshed(a_node("a", 16, 15), a_node("b", 64, 9))
    found = plan(Wish(a_card(15, num_key_value_heads=None)), cluster)
    assert names(found) == ["a", "b"]
    assert layers(found) == [(0, 18), (18, 32)]
    assert all(rank.need.total_bytes < rank.budget.usable_bytes for rank in found.ranks)


def test_tensor_shares_evenly_where_pipeline_follows_the_memory() -> None:
    cluster = meshed(a_node("a", 64, 7), a_node("b", 64, 14))
    with pytest.raises(DoesNotFit):
        plan(Wish(a_card(18, num_key_value_heads=None), sharding="Tensor", min_nodes=2), cluster)
    found = plan(Wish(a_card(14, num_key_value_heads=None)), cluster)
    assert layers(found) == [(0, 11), (11, 32)]


def test_the_neighbouring_sizes_of_the_vector_are_admitted_and_refused() -> None:
    cluster = meshed(a_node(free_gib=14))
    assert plan(Wish(a_card(8, num_key_value_heads=None)), cluster)
    with pytest.raises(DoesNotFit):
        plan(Wish(a_card(10, num_key_value_heads=None)), cluster)


def test_a_daisy_chain_gives_its_end_and_keeps_its_middle() -> None:
    nodes = [a_node(name, 16) for name in "abcd"]
    chain = linked(nodes, [("c", "a", 2), ("a", "b", 2), ("b", "d", 2)])
    assert names(plan(Wish(a_card(12)), chain)) in (["a", "c"], ["b", "d"])
    assert names(plan(Wish(a_card(2)), chain)) in (["c"], ["d"])


def test_the_best_links_are_chosen_before_files_and_memory() -> None:
    nodes = [a_node("a"), a_node("b"), a_node("c", 32, staged=1.0), a_node("d", 32, staged=1.0)]
    pairs = [
        ("a", "b", 0),
        ("a", "c", 2),
        ("a", "d", 2),
        ("b", "c", 3),
        ("b", "d", 5),
        ("c", "d", 3),
    ]
    wish = Wish(a_card(12), min_nodes=2)
    assert names(plan(wish, linked(nodes, pairs))) == ["a", "b"]
    without = [pair for pair in pairs if pair[2] != 0]
    assert names(plan(wish, linked(nodes, without))) == ["a", "c"]


def test_ranks_follow_the_best_links_and_the_worst_closes_the_ring() -> None:
    nodes = [a_node(name, 16) for name in "abcd"]
    kinds = {"ab": 0, "ad": 0, "cd": 0, "bc": 3, "ac": 5, "bd": 5}
    cluster = linked(nodes, [(pair[0], pair[1], kind) for pair, kind in kinds.items()])
    found = plan(Wish(a_card(20), min_nodes=4), cluster)
    assert names(found) in (["c", "d", "a", "b"], ["b", "a", "d", "c"])


def test_a_ring_without_chords_is_found_and_an_open_chain_is_none() -> None:
    nodes = [a_node(name, 16) for name in "abcde"]
    edges = [("a", "b", 2), ("b", "c", 2), ("c", "d", 2), ("d", "e", 2)]
    wish = Wish(a_card(30))
    found = plan(wish, linked(nodes, [*edges, ("e", "a", 2)]))
    around = names(found)
    assert sorted(around) == list("abcde")
    neighbours = {frozenset((one, around[i - 1])) for i, one in enumerate(around)}
    assert neighbours == {frozenset("ab"), frozenset("bc"), frozenset("cd"), frozenset("de"),
                          frozenset("ea")}  # fmt: skip
    with pytest.raises(DoesNotFit):
        plan(wish, linked(nodes, edges))


def test_a_link_in_one_direction_only_is_none() -> None:
    cluster = meshed(a_node("a"), a_node("b"))
    one_way = {key: value for key, value in cluster.links.ring.items() if key[0] == "a"}
    half = Cluster(cluster.nodes, type(cluster.links)(ring=one_way))
    with pytest.raises(Refusal) as caught:
        plan(Wish(a_card(), min_nodes=2), half)
    assert caught.value.pending


def test_the_addresses_of_a_ring_are_those_of_the_vector() -> None:
    cluster = meshed(*(a_node(f"n{i}", 16) for i in range(4)))
    found = plan(Wish(a_card(4), min_nodes=4), cluster)
    fresh = Fresh(InstanceId("i"), tuple(RunnerId(f"r{i}") for i in range(4)), 50_000)
    instance = instance_of(found, cluster.links, fresh)
    assert isinstance(instance, MlxRingInstance)
    assert [(host.ip, host.port) for host in instance.hosts_by_node[NodeId("n1")]] == [
        ("ip-n0", 50_000), ("0.0.0.0", 50_000), ("ip-n2", 50_000), ("198.51.100.1", 0),
    ]  # fmt: skip
    shards = instance.shard_assignments.runner_to_shard
    assert [shards[RunnerId(f"r{i}")].device_rank for i in range(4)] == [0, 1, 2, 3]
    assert {shard.world_size for shard in shards.values()} == {4}


def test_rdma_needs_every_pair_and_describes_every_pair() -> None:
    nodes = [a_node(name, 16) for name in "abc"]
    cluster = with_rdma(meshed(*nodes), [("a", "b"), ("b", "c"), ("a", "c")])
    wish = Wish(a_card(20), meta="MlxJaccl")
    found = plan(wish, cluster)
    fresh = Fresh(InstanceId("i"), tuple(RunnerId(name) for name in "xyz"), 50_000)
    instance = instance_of(found, cluster.links, fresh)
    assert isinstance(instance, MlxJacclInstance)
    assert instance.jaccl_devices == [
        [None, "rdma_a_b", "rdma_a_c"],
        ["rdma_b_a", None, "rdma_b_c"],
        ["rdma_c_a", "rdma_c_b", None],
    ]
    assert instance.jaccl_coordinators == {
        "a": "0.0.0.0:50000", "b": "ip-a:50000", "c": "ip-a:50000",
    }  # fmt: skip


def test_a_tensor_placement_has_every_layer_on_every_rank() -> None:
    cluster = meshed(a_node("a"), a_node("b"))
    found = plan(Wish(a_card(4), sharding="Tensor", min_nodes=2), cluster)
    fresh = Fresh(InstanceId("i"), (RunnerId("x"), RunnerId("y")), 50_000)
    shards = instance_of(found, cluster.links, fresh).shard_assignments.runner_to_shard.values()
    assert {type(shard) for shard in shards} == {TensorShardMetadata}
    assert {(shard.start_layer, shard.end_layer) for shard in shards} == {(0, 32)}
    assert found.ranks[0].need == need_of(a_card(4), found.ranks[0].part)


@pytest.mark.parametrize(
    ("shape", "card", "ranks", "fragment"),
    [
        (ModelDimensions(), a_card(num_key_value_heads=3), 2, "key-value heads 3"),
        (ModelDimensions(), a_card(hidden_size=9, num_key_value_heads=None), 2, "hidden size 9"),
        (ModelDimensions(heads=9, kv_heads=3), a_card(hidden_size=576), 2, "attention heads 9"),
        (ModelDimensions(intermediate=1537), a_card(), 2, "intermediate size 1537"),
        (
            ModelDimensions(heads=8, head_dimension=16, quantization_group=64), a_card(), 4,
            "attention width 128 in groups of 64",
        ),
        (
            ModelDimensions(intermediate=192, quantization_group=64), a_card(), 2,
            "intermediate size 192 in groups of 64",
        ),
    ],
)  # fmt: skip
def test_what_does_not_divide_is_never_cut(
    shape: ModelDimensions, card: Any, ranks: int, fragment: str
) -> None:
    assert any(fragment in text for text in tensor_obstacles(card, shape, ranks))
    cluster = meshed(*(a_node(f"n{i}") for i in range(ranks)))
    with pytest.raises(NotDivisible) as caught:
        plan(Wish(card, sharding="Tensor", min_nodes=ranks, shape=shape), cluster)
    assert fragment in str(caught.value)


def test_a_wider_tensor_placement_is_made_when_the_smallest_does_not_divide() -> None:
    cluster = meshed(*(a_node(f"n{i}") for i in range(3)))
    wish = Wish(a_card(num_key_value_heads=3, hidden_size=576), sharding="Tensor", min_nodes=2)
    assert len(plan(wish, cluster).ranks) == 3


def test_the_shape_is_read_from_a_configuration() -> None:
    config = {
        "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 1536, "quantization": {"group_size": 64, "bits": 4},
    }  # fmt: skip
    assert shape_from_config(config) == ModelDimensions(9, 3, 64, 1536, 64, 4)
    assert shape_from_config({"text_config": config, "hidden_size": 1}).heads == 9
    assert shape_from_config({**config, "head_dim": 256}).head_dimension == 256
    assert shape_from_config({**config, "kv_lora_rank": 512}).head_dimension is None
    assert (
        shape_from_config({"num_attention_heads": "many", "hidden_size": -1}) == ModelDimensions()
    )


def test_graphics_memory_counts_where_it_computes() -> None:
    gpu = AcceleratorMetrics(vendor="nvidia", vram_total_bytes=48 * GIB, vram_used_bytes=0)
    tags = frozenset({"mlx", "mlx-cuda"})
    with_gpu = a_node("gpu", 16, accelerator=gpu, backends=tags)
    found = plan(Wish(a_card(30)), meshed(a_node("ram", 32), with_gpu))
    assert names(found) == ["gpu"]
    assert found.ranks[0].budget.pool == "GPU VRAM"
    only_cpu = a_node("gpu", 16, accelerator=gpu, backends=frozenset({"mlx", "mlx-cpu"}))
    with pytest.raises(DoesNotFit):
        plan(Wish(a_card(30)), meshed(only_cpu))


@pytest.mark.parametrize(
    ("accelerator", "usable_gib", "ceiling_gib"),
    [
        pytest.param(None, None, None, id="not read: unknown, never the RAM"),
        pytest.param(AcceleratorMetrics(vendor="cpu"), 0, 0, id="no GPU was found"),
        pytest.param(AcceleratorMetrics(vendor="nvidia"), 12, 12, id="shares the host's memory"),
        pytest.param(
            AcceleratorMetrics(
                vendor="nvidia", vram_total_bytes=40 * GIB, vram_used_bytes=30 * GIB
            ),
            10,
            36,
            id="the ceiling does not follow what is free",
        ),
    ],
)
def test_a_node_with_cuda_counts_what_its_gpu_has(
    accelerator: AcceleratorMetrics | None, usable_gib: int | None, ceiling_gib: int | None
) -> None:
    tags = frozenset({"mlx", "mlx-cuda"})
    budget = a_node("gpu", 16, accelerator=accelerator, backends=tags).budget
    if usable_gib is None or ceiling_gib is None:
        assert budget is None
    else:
        assert budget is not None
        assert budget.usable_bytes == usable_gib * GIB
        assert budget.ceiling_bytes == ceiling_gib * GIB


def test_a_preferred_backend_is_chosen_and_named() -> None:
    placement = PlacementCardConfig(
        compatible_backends=["mlx", "mlx-cpu", "mlx-metal"], backend_preference=["mlx-metal"]
    )
    cluster = meshed(
        a_node("cpu", 64, backends=frozenset({"mlx", "mlx-cpu"})),
        a_node("metal", 16, backends=frozenset({"mlx", "mlx-metal"})),
    )
    instance = instance_of(plan(Wish(a_card(placement=placement)), cluster), cluster.links, FRESH)
    [shard] = instance.shard_assignments.runner_to_shard.values()
    assert list(instance.shard_assignments.node_to_runner) == ["metal"]
    assert shard.resolved_backend == "mlx-metal"


def test_previews_have_one_plan_for_each_number_of_nodes() -> None:
    cluster = meshed(*(a_node(f"n{i}", 16) for i in range(4)))
    assert [len(found.ranks) for found in plans_by_size(Wish(a_card(12)), cluster)] == [2, 3, 4]
    tensor = Wish(a_card(12, num_key_value_heads=4), sharding="Tensor")
    assert [len(found.ranks) for found in plans_by_size(tensor, cluster)] == [2, 4]


def test_names_and_ports_are_new_and_no_port_of_ours() -> None:
    made = [make_fresh(2, taken_ports=range(49152, 65000)) for _ in range(50)]
    assert len({fresh.instance_id for fresh in made}) == 50
    assert len({runner for fresh in made for runner in fresh.runner_ids}) == 100
    assert all(65000 <= fresh.port <= 65535 for fresh in made)
    low = make_fresh(1, taken_ports=set(range(49152, 65536)) - {52414} - RESERVED_PORTS)
    assert low.port == 52414


gibs = st.floats(min_value=0.01, max_value=600)
machines = st.lists(st.tuples(gibs, gibs), min_size=1, max_size=6)
shardings = st.sampled_from(["Pipeline", "Tensor"])


def _mesh(machines: list[tuple[float, float]], more: float = 0) -> Cluster:
    nodes = [
        a_node(f"n{i}", total + more, min(total, free) + more)
        for i, (total, free) in enumerate(machines)
    ]
    return meshed(*nodes)


def _plan(wish: Wish, cluster: Cluster) -> PlacementPlan | None:
    try:
        return plan(wish, cluster)
    except Refusal:
        return None


@given(gibs, machines, shardings, st.integers(min_value=1, max_value=4))
def test_no_node_is_ever_promised_more_than_it_can_give(
    gib: float, machines: list[tuple[float, float]], sharding: Any, min_nodes: int
) -> None:
    wish = Wish(a_card(gib), sharding=sharding, min_nodes=min_nodes)
    found = _plan(wish, _mesh(machines))
    if found is None:
        return
    assert len(found.ranks) >= min_nodes
    assert len(set(found.node_ids)) == len(found.ranks)
    for rank in found.ranks:
        assert need_of(wish.card, rank.part).total_bytes < rank.budget.usable_bytes


@given(gibs, machines)
def test_layers_are_divided_without_gap_or_overlap(
    gib: float, machines: list[tuple[float, float]]
) -> None:
    found = _plan(Wish(a_card(gib)), _mesh(machines))
    if found is not None:
        bounds = [0, *(rank.end_layer for rank in found.ranks)]
        assert [rank.start_layer for rank in found.ranks] == bounds[:-1]
        assert bounds[-1] == 32
        assert all(one < other for one, other in pairwise(bounds))


@given(gibs, machines, shardings, st.floats(min_value=0, max_value=100))
def test_more_memory_never_turns_a_yes_into_a_no_nor_widens_a_plan(
    gib: float, machines: list[tuple[float, float]], sharding: Any, more: float
) -> None:
    wish = Wish(a_card(gib), sharding=sharding)
    found = _plan(wish, _mesh(machines))
    if found is not None:
        grown = _plan(wish, _mesh(machines, more))
        assert grown is not None
        assert len(grown.ranks) <= len(found.ranks)


edges = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 5)), max_size=24)


@given(edges, st.floats(min_value=1, max_value=80), st.integers(min_value=1, max_value=4))
def test_neighbours_in_a_sparse_plan_are_always_linked(
    edges: list[tuple[int, int, int]], gib: float, min_nodes: int
) -> None:
    nodes: list[PlacementCandidate] = [a_node(f"n{i}", 16 + i) for i in range(7)]
    pairs = [(f"n{a}", f"n{b}", kind) for a, b, kind in edges if a != b]
    cluster = linked(nodes, pairs)
    found = _plan(Wish(a_card(gib), min_nodes=min_nodes), cluster)
    if found is not None and len(found.ranks) > 1:
        ring = found.node_ids
        assert all(cluster.links.kind(one, ring[i - 1]) < 9 for i, one in enumerate(ring))
