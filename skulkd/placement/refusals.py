"""Why a model cannot be placed: one type for each reason, with the facts it rests on.

Each renders the sentence of the HTTP answer and hints that an operator can paste. Must not know
of HTTP; `pending` says that the same question may have another answer in a moment.

Refusal
├── TooFewNodes     fewer nodes are known than were asked for
├── UnknownNode     a node was named that is not here
├── AllExcluded     every node was ruled out by the request
├── InfoPending     what is needed to decide has not been gathered yet
├── NotSupported    the model, or this way of sharing it, cannot be served
└── DoesNotFit      too little memory, with the arithmetic
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from skulkd.placement.memory import KV_BUDGET_TOKENS, Need
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.placement import Sharding

_GIB = 1024**3


class Refusal(Exception):
    """A placement that is not possible. `str()` is the whole sentence."""

    pending: ClassVar[bool] = False

    def __init__(self, message: str, hints: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.hints = tuple(hints)


class TooFewNodes(Refusal):
    def __init__(self, known: int, min_nodes: int) -> None:
        self.known = known
        self.min_nodes = min_nodes
        super().__init__(
            f"only {known} node(s) are in the topology, so min_nodes={min_nodes} is impossible",
            ["see which nodes are here: skulkctl nodes"],
        )


class UnknownNode(Refusal):
    def __init__(self, node_ids: Sequence[NodeId]) -> None:
        self.node_ids = tuple(node_ids)
        super().__init__(
            f"no node of this cluster is called {_list(node_ids)}",
            ["ids change at every start; see the current ones: skulkctl nodes"],
        )


class AllExcluded(Refusal):
    def __init__(self, min_nodes: int, excluded: Sequence[NodeId]) -> None:
        self.excluded = tuple(excluded)
        super().__init__(
            f"all candidates of at least {min_nodes} node(s) touch an excluded node"
            f" ({len(self.excluded)} in excluded_nodes; node ids change in every session)",
            ["place without the exclusions, or name other nodes: skulkctl nodes"],
        )


class InfoPending(Refusal):
    """`node_ids` are those without memory readings; none when the links are not known yet."""

    pending = True

    def __init__(self, known: int, min_nodes: int, node_ids: Sequence[NodeId] = ()) -> None:
        self.node_ids = tuple(node_ids)
        if node_ids:
            message = f"Memory info is still missing for node(s) {_list(node_ids)}"
        else:
            message = f"{known} nodes are known, but no connected cycle of at least {min_nodes} yet"
        super().__init__(f"{message}; the cluster may still be starting, retry shortly")


class NotSupported(Refusal):
    """The request cannot be met on any machine of this kind."""


class DoesNotFit(Refusal):
    def __init__(
        self, model_id: ModelId, weights_bytes: int, rejected: Sequence["RejectedCycle"]
    ) -> None:
        self.model_id = model_id
        self.weights_bytes = weights_bytes
        self.rejected = tuple(rejected)
        reasons = "; ".join(cycle.text for cycle in self.rejected)
        super().__init__(
            f"No candidate cycle fits {model_id} ({_gb(weights_bytes)} weights): {reasons}",
            [
                "free memory by deleting an instance: skulkctl instances",
                "or place a smaller or more strongly quantised model: skulkctl models",
            ],
        )


@dataclass(frozen=True, slots=True)
class ShortNode:
    """A node that lacks memory for its share."""

    node_id: NodeId
    need: Need
    usable_bytes: int

    @property
    def text(self) -> str:
        need = self.need
        return (
            f"{self.node_id} needs ~{_gb(need.total_bytes)}"
            f" ({_gb(need.weights_bytes)} weights"
            f" + {_gb(need.kv_bytes)} KV@{KV_BUDGET_TOKENS}tok"
            f" + {_gb(need.overhead_bytes + need.floor_bytes)} headroom)"
            f" but has {_gb(self.usable_bytes)} usable"
            " (the lesser of available RAM and 75% of RAM)"
        )


@dataclass(frozen=True, slots=True)
class RejectedCycle:
    """A set of nodes that was considered, and those of them that are too small."""

    node_ids: tuple[NodeId, ...]
    sharding: Sharding
    short: tuple[ShortNode, ...]

    @property
    def text(self) -> str:
        return f"{_list(self.node_ids)} {self.sharding}: {', '.join(n.text for n in self.short)}"


def _list(node_ids: Sequence[NodeId]) -> str:
    return f"[{', '.join(node_ids)}]"


def _gb(in_bytes: int) -> str:
    # Clients of the reference look for this spelling; it counts 2**30 bytes as it always did.
    return f"{in_bytes / _GIB:.1f}GB"
