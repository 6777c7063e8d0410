"""Every reason for which a placement is refused: its type, its words, its data, and the order."""

from __future__ import annotations

from typing import Any

import pytest

from skulkd.placement.candidates import Cluster, PlacementCandidate
from skulkd.placement.links import Links
from skulkd.placement.memory import need_of
from skulkd.placement.planner import plan
from skulkd.placement.refusals import (
    AllDraining,
    AllExcluded,
    DoesNotFit,
    Ineligible,
    InfoPending,
    NoFiles,
    NoRdma,
    NotDivisible,
    NotServed,
    PipelineUnsupported,
    Refusal,
    RequiredMissing,
    SingleNodeOnly,
    TensorUnsupported,
    TooFewLayers,
    TooFewNodes,
    UnknownNode,
)
from skulkd.placement.wish import Wish
from skulkd.wire.cards import ModelCard, PlacementCardConfig
from skulkd.wire.ids import ModelId, NodeId
from tests.placement.builders import GIB, a_card, a_node, linked, meshed

BLIND = PlacementCandidate(NodeId("node-b"), None)
ONE = meshed(a_node())
TWO = meshed(a_node(), a_node("node-b"))


def only(*tags: str) -> PlacementCardConfig:
    return PlacementCardConfig(compatible_backends=list(tags))


def these(*names: str) -> Any:
    return frozenset(NodeId(name) for name in names)


CASES = [
    (Wish(a_card(), min_nodes=2), ONE, TooFewNodes, ["min_nodes=2 is impossible"]),
    (Wish(a_card()), Cluster(()), TooFewNodes, ["min_nodes=1"]),
    (Wish(a_card(), required=these("ghost")), ONE, UnknownNode, ["[ghost]"]),
    (Wish(a_card(), only=these("ghost")), ONE, UnknownNode, ["[ghost]"]),
    (
        Wish(a_card(), min_nodes=2),
        linked([a_node(), a_node("node-b")], []),
        InfoPending,
        ["retry shortly", "2 nodes are known"],
    ),
    (
        Wish(a_card(), excluded=these("node-a")),
        ONE,
        AllExcluded,
        ["touch an excluded node", "excluded_nodes", "node-a is excluded"],
    ),
    (
        Wish(a_card(), only=these("node-a"), min_nodes=2),
        TWO,
        AllExcluded,
        ["node-b is not among the nodes that were named"],
    ),
    (
        Wish(a_card(), only=these("node-b", "node-c"), min_nodes=2),
        linked([a_node(), a_node("node-b"), a_node("node-c")], [("node-a", "node-b", 2)]),
        InfoPending,
        ["2 nodes are known", "retry shortly"],
    ),
    (
        Wish(a_card(), only=these("node-b", "node-c"), min_nodes=2),
        linked(
            [a_node(), a_node("node-b"), a_node("node-c")],
            [("node-a", "node-b", 2), ("node-a", "node-c", 2)],
        ),
        AllExcluded,
        ["node-a is not among the nodes that were named"],
    ),
    (
        Wish(a_card(), excluded=these("node-a")),
        meshed(a_node(), a_node("node-b", draining=True)),
        AllDraining,
        ["node-a is excluded", "node-b is draining"],
    ),
    (
        Wish(a_card(placement=only("llama_cpp-cpu"))),
        ONE,
        Ineligible,
        ["ineligible for this model", "llama_cpp-cpu", "node-a has only mlx"],
    ),
    (
        Wish(a_card()),
        meshed(a_node(participation="management")),
        Ineligible,
        ["node-a only takes part as management"],
    ),
    (
        Wish(a_card(placement=PlacementCardConfig(min_vram_gib=64))),
        ONE,
        Ineligible,
        ["has 12.0 GiB for models, the card wants 64 GiB"],
    ),
    (
        Wish(a_card(placement=only("llama_cpp-cpu")), min_nodes=2),
        meshed(*(a_node(name, backends=frozenset({"llama_cpp-cpu"})) for name in "ab")),
        SingleNodeOnly,
        ["single node only"],
    ),
    (Wish(a_card(tasks=["TextToImage"])), ONE, NotServed, ["TextToImage"]),
    (
        Wish(a_card()),
        meshed(a_node(files_problem="org/name has no files on this node")),
        NoFiles,
        ["org/name has no files on this node", "node-a has no files"],
    ),
    (
        Wish(a_card(), required=these("node-b")),
        meshed(a_node(), a_node("node-b", draining=True)),
        RequiredMissing,
        ["contains all required nodes", "node-b is draining"],
    ),
    (Wish(a_card()), Cluster((BLIND,)), InfoPending, ["Memory info", "[node-b]"]),
    (Wish(a_card(100)), Cluster((a_node(), BLIND)), InfoPending, ["[node-b]"]),
    (Wish(a_card(100)), ONE, DoesNotFit, ["No candidate cycle fits"]),
    (
        Wish(a_card(4, supports_tensor=False), sharding="Tensor"),
        ONE,
        TensorUnsupported,
        ["does not support tensor parallelism"],
    ),
    (
        Wish(a_card(100, supports_tensor=False), sharding="Tensor"),
        ONE,
        DoesNotFit,
        ["No candidate cycle fits"],
    ),
    (
        Wish(a_card(num_key_value_heads=3), sharding="Tensor", min_nodes=2),
        TWO,
        NotDivisible,
        ["No tensor sharding found", "key-value heads 3"],
    ),
    (
        Wish(a_card(model_id=ModelId("mlx-community/DeepSeek-V3.1-8bit"))),
        ONE,
        PipelineUnsupported,
        ["not supported for DeepSeek V3.1"],
    ),
    (
        Wish(a_card(n_layers=1), min_nodes=2),
        TWO,
        TooFewLayers,
        ["need at least 1 layer per node"],
    ),
    (Wish(a_card(), min_nodes=2, meta="MlxJaccl"), TWO, NoRdma, ["no RDMA-connected cycles"]),
]


@pytest.mark.parametrize(
    ("wish", "cluster", "refusal", "fragments"),
    CASES,
    ids=[f"{case[2].__name__}-{i}" for i, case in enumerate(CASES)],
)
def test_what_cannot_be_placed_is_refused_with_its_reason(
    wish: Wish, cluster: Cluster, refusal: type[Refusal], fragments: list[str]
) -> None:
    with pytest.raises(refusal) as caught:
        plan(wish, cluster)
    assert type(caught.value) is refusal
    assert caught.value.kind == refusal.__name__
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert caught.value.pending == (refusal is InfoPending)


def test_a_refusal_for_memory_shows_the_arithmetic() -> None:
    card = a_card(10, num_key_value_heads=None)
    with pytest.raises(DoesNotFit) as caught:
        plan(Wish(card), meshed(a_node(free_gib=14)))
    assert str(caught.value) == (
        "No candidate cycle fits org/name (10.0GB weights): [node-a] Pipeline: node-a needs ~13.2GB"
        " (10.0GB weights + 0.0GB KV@8192tok + 3.2GB headroom) but has 12.0GB usable"
        " (the lesser of available RAM and 75% of RAM)"
    )
    assert caught.value.data["rejected"][0]["short"] == [
        {
            "node": "node-a",
            "needBytes": need_of(card).total_bytes,
            "haveBytes": 12 * GIB,
            "pool": "the lesser of available RAM and 75% of RAM",
            "parts": need_of(card).parts,
        }
    ]


def test_the_roomiest_nodes_and_the_widest_ring_explain_a_refusal() -> None:
    cluster = meshed(a_node("one"), a_node("two", 32), a_node("three", 8))
    with pytest.raises(DoesNotFit) as caught:
        plan(Wish(a_card(100)), cluster)
    assert [cycle.node_ids for cycle in caught.value.rejected] == [
        ("two",), ("one",), ("three",), ("two", "one", "three"),
    ]  # fmt: skip
    short = caught.value.rejected[-1].short
    assert {node.node_id for node in short} == {"one", "two", "three"}


def test_whole_layers_that_do_not_fit_are_refused_although_the_sum_would() -> None:
    card = a_card(20, n_layers=2, num_key_value_heads=None)
    with pytest.raises(DoesNotFit) as caught:
        plan(Wish(card), meshed(a_node("a", 64, 12), a_node("b", 64, 18)))
    assert "[b, a] Pipeline: a needs ~13.2GB" in str(caught.value)


@pytest.mark.parametrize("card", [a_card(12), a_card(17)], ids=["two would do", "so would both"])
def test_memory_is_no_reason_before_links_were_measured(card: ModelCard) -> None:
    """A cluster that has just formed must not be told that it is too small."""
    nodes = [a_node("a", 32, 16), a_node("b", 32, 16)]
    with pytest.raises(InfoPending):
        plan(Wish(card), linked(nodes, []))
    assert len(plan(Wish(card), linked(nodes, [("a", "b", 2)])).ranks) == 2


def test_a_link_of_named_nodes_that_was_measured_one_way_is_waited_for() -> None:
    """A node that has just come back is found by the others one after the other."""
    names = ("node-a", "node-b", "node-c")
    ring = {
        (NodeId(one), NodeId(other)): (2, f"ip-{other}")
        for one in names
        for other in names
        if one != other and (one, other) != ("node-b", "node-c")
    }
    cluster = Cluster(tuple(a_node(name) for name in names), Links(ring=ring))
    with pytest.raises(InfoPending) as caught:
        plan(Wish(a_card(), only=these("node-b", "node-c"), min_nodes=2), cluster)
    assert caught.value.pending
