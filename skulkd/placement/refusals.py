"""Why a model cannot be placed: one type for each reason, with the facts it rests on.

Each renders the sentence of the HTTP answer and hints that an operator can paste; `data` is the
same for programs. Must not know of HTTP; `pending` says that the same question may have another
answer in a moment.

Refusal
├── TooFewNodes         fewer nodes are known than were asked for
├── UnknownNode         a node was named that is not here
├── UnknownInstance     the instance is not here, or not any more
├── AllExcluded         every group was ruled out by the request
├── AllDraining         the nodes that are left are being emptied
├── Ineligible          no node takes part and has a backend for the model
├── SingleNodeOnly      the model's engine cannot share it
├── NoFiles             nobody has the model's files and nobody can fetch them
├── RequiredMissing     no group has all the nodes that must be in it
├── InfoPending         what is needed to decide has not been gathered yet
├── NotServed           the model does something that no runner here does
├── TensorUnsupported   the model cannot be cut into slices
├── NotDivisible        no number of slices divides the model
├── PipelineUnsupported the model cannot be cut into layers
├── TooFewLayers        more nodes were asked for than the model has layers
├── NoRdma              not every pair of the nodes is connected by RDMA
├── BadInstance         an instance that was given whole and cannot be carried out
├── Taken               an instance or a runner of this id is there already
├── MovedTooOften       it failed everywhere it was moved to
├── NotOnDemand         an operator placed it, so only an operator takes it away
├── InstanceBusy        it has requests and is not unloaded
├── RoomLater           models that could be unloaded for it are in use
└── DoesNotFit          too little memory, with the arithmetic
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from skulkd.placement.memory import KV_BUDGET_TOKENS, Need
from skulkd.placement.rdma_gaps import RdmaGap
from skulkd.wire.ids import InstanceId, ModelId, NodeId
from skulkd.wire.placement import Sharding

_GIB = 1024**3
_MOST_GAPS = 6
_SEE_NODES = "see which nodes are here: skulkctl nodes"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A node that was not considered, and why."""

    node_id: NodeId
    reason: str

    @property
    def text(self) -> str:
        return f"{self.node_id} {self.reason}"


class Refusal(Exception):
    """A placement that is not possible. `str()` is the whole sentence, with the nodes left out."""

    pending: bool = False

    def __init__(
        self,
        message: str,
        hints: Sequence[str] = (),
        data: dict[str, Any] | None = None,
        dropped: Sequence[Dropped] = (),
    ) -> None:
        self.dropped = tuple(dropped)
        if dropped:
            message += f"; left out: {', '.join(node.text for node in dropped)}"
        super().__init__(message)
        self.kind = type(self).__name__
        self.hints = tuple(hints)
        self.data = data or {}
        if dropped:
            self.data["leftOut"] = {node.node_id: node.reason for node in dropped}


class TooFewNodes(Refusal):
    def __init__(self, known: int, min_nodes: int) -> None:
        super().__init__(
            f"only {known} node(s) are in the topology, so min_nodes={min_nodes} is impossible",
            [_SEE_NODES],
            {"known": known, "minNodes": min_nodes},
        )


class UnknownNode(Refusal):
    def __init__(self, node_ids: Sequence[NodeId]) -> None:
        super().__init__(
            f"no node of this cluster is called {id_list(node_ids)}",
            ["ids may change at a start; see the current ones: skulkctl nodes"],
            {"nodeIds": list(node_ids)},
        )


class UnknownInstance(Refusal):
    """Its sentence is the contract's own."""

    def __init__(self) -> None:
        super().__init__("Instance not found", ["skulkctl instances"])


class AllExcluded(Refusal):
    def __init__(
        self, min_nodes: int, excluded: Sequence[NodeId], dropped: Sequence[Dropped]
    ) -> None:
        super().__init__(
            f"all candidates of at least {min_nodes} node(s) touch an excluded node"
            f" ({len(excluded)} in excluded_nodes; node ids may change in every session)",
            ["place without the exclusions, or name other nodes: skulkctl nodes"],
            {"excluded": list(excluded), "minNodes": min_nodes},
            dropped,
        )


class AllDraining(Refusal):
    def __init__(self, min_nodes: int, dropped: Sequence[Dropped]) -> None:
        super().__init__(
            f"fewer than {min_nodes} node(s) are left because nodes are draining, and a draining"
            " node takes no new placement",
            ["take a node back: skulkctl undrain NODE"],
            {"minNodes": min_nodes},
            dropped,
        )


class Ineligible(Refusal):
    def __init__(self, backends: Sequence[str], dropped: Sequence[Dropped]) -> None:
        super().__init__(
            "every candidate is ineligible for this model: its nodes do not take part or have none"
            f" of its compatible backends: {', '.join(backends)}",
            [_SEE_NODES],
            {"compatibleBackends": list(backends)},
            dropped,
        )


class SingleNodeOnly(Refusal):
    def __init__(self, model_id: ModelId, min_nodes: int) -> None:
        super().__init__(
            f"{model_id} can be served on a single node only, and {min_nodes} nodes were asked for",
            ["place it on one node: leave --min-nodes out"],
            {"minNodes": min_nodes},
        )


class NoFiles(Refusal):
    def __init__(self, model_id: ModelId, problem: str, dropped: Sequence[Dropped]) -> None:
        super().__init__(
            problem,
            [
                f"bring its files: skulkctl model import PATH --id {model_id}",
                "or a first model: skulkctl model pull demo",
            ],
            {"modelId": model_id},
            dropped,
        )


class RequiredMissing(Refusal):
    def __init__(self, required: Sequence[NodeId], dropped: Sequence[Dropped]) -> None:
        super().__init__(
            f"no candidate contains all required nodes: {', '.join(required)}",
            [_SEE_NODES],
            {"required": list(required)},
            dropped,
        )


class InfoPending(Refusal):
    """`node_ids` are those without memory readings; none when the links are not known yet."""

    pending = True

    def __init__(self, known: int, min_nodes: int, node_ids: Sequence[NodeId] = ()) -> None:
        if node_ids:
            message = f"Memory info is still missing for node(s) {id_list(node_ids)}"
        else:
            message = f"{known} nodes are known, but no connected cycle of at least {min_nodes} yet"
        super().__init__(
            f"{message}; the cluster may still be starting, retry shortly",
            [_SEE_NODES],
            {"known": known, "minNodes": min_nodes, "nodeIds": list(node_ids)},
        )


class NotServed(Refusal):
    def __init__(self, model_id: ModelId, tasks: Sequence[str]) -> None:
        super().__init__(
            f"{model_id} does {', '.join(tasks)}; runners here do text and embeddings only",
            ["see what can be placed: skulkctl models"],
            {"tasks": list(tasks)},
        )


class TensorUnsupported(Refusal):
    def __init__(self, model_id: ModelId) -> None:
        super().__init__(
            f"{model_id} does not support tensor parallelism",
            [f"place it in layers: skulkctl place {model_id} --sharding Pipeline"],
        )


class NotDivisible(Refusal):
    def __init__(self, model_id: ModelId, sizes: Sequence[int], obstacles: Sequence[str]) -> None:
        sizes_text = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        super().__init__(
            f"No tensor sharding found for {model_id} on {sizes_text} nodes: not divisible by"
            f" {sizes[0]}: {', '.join(obstacles)}",
            [f"place it in layers: skulkctl place {model_id} --sharding Pipeline"],
            {"sizes": list(sizes), "obstacles": list(obstacles)},
        )


class PipelineUnsupported(Refusal):
    def __init__(self, model_id: ModelId) -> None:
        super().__init__(
            f"Pipeline is not supported for DeepSeek V3.1 8bit ({model_id})",
            [f"cut it into slices: skulkctl place {model_id} --sharding Tensor"],
        )


class TooFewLayers(Refusal):
    def __init__(self, model_id: ModelId, layers: int, min_nodes: int) -> None:
        super().__init__(
            f"{model_id} has {layers} layers and cannot be divided over {min_nodes} nodes:"
            " need at least 1 layer per node",
            [f"ask for fewer nodes: skulkctl place {model_id} --min-nodes {layers}"],
            {"layers": layers, "minNodes": min_nodes},
        )


class NoRdma(Refusal):
    """`gaps` say what is missing where. None are known of a cluster without readings."""

    def __init__(
        self, min_nodes: int, gaps: Sequence[RdmaGap] = (), dropped: Sequence[Dropped] = ()
    ) -> None:
        told = "; ".join(gap.text for gap in gaps[:_MOST_GAPS])
        if len(gaps) > _MOST_GAPS:
            told += f"; and {len(gaps) - _MOST_GAPS} more"
        hints = [gap.hint for gap in gaps[:_MOST_GAPS] if gap.hint is not None]
        super().__init__(
            f"MlxJaccl was asked for, but there are no RDMA-connected cycles of {min_nodes} or more"
            " nodes: every pair must have an RDMA link in both directions"
            + (f": {told}" if told else ""),
            [*dict.fromkeys(hints), "connect them by TCP instead: --instance-meta MlxRing"],
            {"minNodes": min_nodes, "missing": [gap.data for gap in gaps]},
            dropped,
        )


class BadInstance(Refusal):
    """What is wrong, in words; nothing was changed."""


class Taken(Refusal):
    """An instance or a runner of this id is there already."""


class MovedTooOften(Refusal):
    def __init__(self, moves: int) -> None:
        super().__init__(
            f"it was moved {moves} times and failed each time; there are no more places to try",
            ["see why: skulkctl events --kind InstanceMoved -o wide"],
            {"moves": moves},
        )


class NotOnDemand(Refusal):
    def __init__(self, instance_id: InstanceId) -> None:
        super().__init__(
            f"instance {instance_id} was placed by an operator and stays until it is deleted",
            [f"skulkctl delete {instance_id}"],
            {"instanceId": instance_id},
        )


class InstanceBusy(Refusal):
    def __init__(self, instance_id: InstanceId) -> None:
        super().__init__(
            f"instance {instance_id} has open requests",
            ["skulkctl instances"],
            {"instanceId": instance_id},
        )


class RoomLater(Refusal):
    """Of a placement on demand: idle instances could be unloaded for it, but none is idle."""

    pending = True

    def __init__(self, refusal: Refusal) -> None:
        message = f"{refusal}; models that could be unloaded for it are in use"
        super().__init__(message, refusal.hints, refusal.data)


class DoesNotFit(Refusal):
    def __init__(
        self,
        model_id: ModelId,
        weights_bytes: int,
        rejected: Sequence[RejectedCycle],
        dropped: Sequence[Dropped] = (),
    ) -> None:
        self.rejected = tuple(rejected)
        reasons = "; ".join(cycle.text for cycle in self.rejected)
        super().__init__(
            f"No candidate cycle fits {model_id} ({gb(weights_bytes)} weights): {reasons}",
            [],
            {
                "modelId": model_id,
                "weightsBytes": weights_bytes,
                "rejected": [cycle.data for cycle in self.rejected],
            },
            dropped,
        )


@dataclass(frozen=True, slots=True)
class ShortNode:
    """A node that lacks memory for its share."""

    node_id: NodeId
    need: Need
    usable_bytes: int
    pool: str = "the lesser of available RAM and 75% of RAM"

    @property
    def text(self) -> str:
        need = self.need
        return (
            f"{self.node_id} needs ~{gb(need.total_bytes)}"
            f" ({gb(need.weights_bytes)} weights"
            f" + {gb(need.kv_bytes)} KV@{KV_BUDGET_TOKENS}tok"
            f" + {gb(need.overhead_bytes + need.floor_bytes)} headroom)"
            f" but has {gb(self.usable_bytes)} usable ({self.pool})"
        )

    @property
    def data(self) -> dict[str, Any]:
        return {
            "node": self.node_id,
            "needBytes": self.need.total_bytes,
            "haveBytes": self.usable_bytes,
            "pool": self.pool,
            "parts": self.need.parts,
        }


@dataclass(frozen=True, slots=True)
class RejectedCycle:
    """A set of nodes that was considered, and those of them that are too small."""

    node_ids: tuple[NodeId, ...]
    sharding: Sharding
    short: tuple[ShortNode, ...]

    @property
    def text(self) -> str:
        return f"{id_list(self.node_ids)} {self.sharding}: {', '.join(n.text for n in self.short)}"

    @property
    def data(self) -> dict[str, Any]:
        return {
            "nodes": list(self.node_ids),
            "sharding": self.sharding,
            "short": [node.data for node in self.short],
        }


def id_list(node_ids: Sequence[NodeId]) -> str:
    return f"[{', '.join(node_ids)}]"


def gb(in_bytes: int) -> str:
    """Clients of the reference look for this spelling; it counts 2**30 bytes as it always did."""
    return f"{in_bytes / _GIB:.1f}GB"


def gib(in_bytes: int) -> str:
    """The right unit, for texts that the reference does not have."""
    return f"{in_bytes / _GIB:.1f} GiB"
