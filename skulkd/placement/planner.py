"""Choose the node for a model and describe the instance. One node for now. Pure.

Checks run in the order of the reference, so that the first reason an operator reads is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from skulkd.placement.fresh import Fresh
from skulkd.placement.memory import (
    WHOLE,
    Share,
    context_token_limit,
    fits,
    need_of,
    usable_bytes,
)
from skulkd.placement.refusals import (
    AllExcluded,
    DoesNotFit,
    InfoPending,
    NotSupported,
    RejectedCycle,
    ShortNode,
    TooFewNodes,
    UnknownNode,
)
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Host, MlxRingInstance
from skulkd.wire.machine import MemoryUsage
from skulkd.wire.placement import Sharding
from skulkd.wire.shards import PipelineShardMetadata, ShardAssignments
from skulkd.wire.state import State

BACKEND = "mlx"
EVERY_INTERFACE = "0.0.0.0"  # noqa: S104 - how an instance spells a rank's own address


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be placed, and where it must or must not go."""

    card: ModelCard
    sharding: Sharding = "Pipeline"
    min_nodes: int = 1
    excluded: frozenset[NodeId] = frozenset()
    required: frozenset[NodeId] = frozenset()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node as the planner sees it; memory is None until it was read."""

    node_id: NodeId
    memory: MemoryUsage | None


def candidates_of(state: State) -> tuple[Candidate, ...]:
    """Every node of a merged state (with readings), in the order in which they came."""
    return tuple(
        Candidate(node_id, state.node_memory.get(node_id)) for node_id in state.topology.nodes
    )


def place(wish: Wish, nodes: Sequence[Candidate], fresh: Fresh) -> MlxRingInstance:
    """The instance that serves the wish on the node with most free memory. Raises Refusal."""
    chosen = choose_node(wish, nodes)
    runner_id = fresh.runner_ids[0]
    card = wish.card
    # One rank shares nothing, so it is always a pipeline of one, whatever was asked for.
    shard = PipelineShardMetadata(
        model_card=card,
        device_rank=0,
        world_size=1,
        resolved_backend=BACKEND,
        start_layer=0,
        end_layer=card.n_layers,
        n_layers=card.n_layers,
    )
    return MlxRingInstance(
        instance_id=fresh.instance_id,
        shard_assignments=ShardAssignments(
            model_id=card.model_id,
            runner_to_shard={runner_id: shard},
            node_to_runner={chosen.node_id: runner_id},
        ),
        context_token_limit=context_token_limit(card, [Share(WHOLE, chosen.memory)]),
        hosts_by_node={chosen.node_id: [Host(ip=EVERY_INTERFACE, port=fresh.port)]},
        ephemeral_port=fresh.port,
    )


@dataclass(frozen=True, slots=True)
class Chosen:
    """A node that has room."""

    node_id: NodeId
    memory: MemoryUsage


def choose_node(wish: Wish, nodes: Sequence[Candidate]) -> Chosen:
    """The node with most free memory among those that can hold the model. Raises Refusal."""
    allowed = _allowed(wish, nodes)
    _check_served(wish.card)
    known = [Chosen(node.node_id, node.memory) for node in allowed if node.memory is not None]
    need = need_of(wish.card)
    roomy = [node for node in known if fits(need, usable_bytes(node.memory))]
    if not roomy:
        unread = [node.node_id for node in allowed if node.memory is None]
        if unread:
            raise InfoPending(len(nodes), wish.min_nodes, unread)
        raise _does_not_fit(wish, known)
    if wish.sharding == "Tensor" and not wish.card.supports_tensor:
        raise NotSupported(
            f"{wish.card.model_id} does not support tensor parallelism",
            ["place it in layers instead: skulkctl place MODEL --sharding Pipeline"],
        )
    return max(roomy, key=lambda node: node.memory.ram_available.in_bytes)


def _allowed(wish: Wish, nodes: Sequence[Candidate]) -> list[Candidate]:
    known = {node.node_id for node in nodes}
    if len(known) < max(1, wish.min_nodes):
        raise TooFewNodes(len(known), wish.min_nodes)
    if wish.min_nodes > 1:
        raise InfoPending(len(known), wish.min_nodes)
    allowed = [node for node in nodes if node.node_id not in wish.excluded]
    if not allowed:
        raise AllExcluded(wish.min_nodes, sorted(wish.excluded))
    if missing := wish.required - known:
        raise UnknownNode(sorted(missing))
    allowed = [node for node in allowed if wish.required <= {node.node_id}]
    if not allowed:
        raise NotSupported(
            f"no candidate contains all required nodes: {', '.join(sorted(wish.required))}"
        )
    return allowed


def _check_served(card: ModelCard) -> None:
    backends = card.placement.compatible_backends
    if BACKEND not in backends:
        raise NotSupported(
            "every node is ineligible for this model: its nodes do not take part or have none of"
            f" its compatible backends: {', '.join(backends)}"
        )
    if "TextGeneration" not in card.tasks:
        raise NotSupported(
            f"{card.model_id} does {', '.join(card.tasks)}; this node answers text only",
            ["see what can be placed: skulkctl models"],
        )


def _does_not_fit(wish: Wish, nodes: Sequence[Chosen]) -> DoesNotFit:
    need = need_of(wish.card)
    rejected = [
        RejectedCycle(
            (node.node_id,),
            wish.sharding,
            (ShortNode(node.node_id, need, usable_bytes(node.memory)),),
        )
        for node in nodes
    ]
    return DoesNotFit(wish.card.model_id, wish.card.storage_size.in_bytes, rejected)
