"""Who is in the cluster, as one value, whichever kind of node was asked. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from skulkctl.errors import CliError

if TYPE_CHECKING:
    from skulkd.wire.cluster import (
        ClusterMember,
        ClusterSession,
        ClusterView,
        LostNode,
        NodeWarning,
    )
    from skulkd.wire.diagnostics import ClusterDiagnostics, NodeDiagnostics
    from skulkd.wire.ids import NodeId

NO_REASON = "no reason given"


class Members(NamedTuple):
    """Who leads, who did not answer (with the reason), who was lost, what the others said."""

    master_id: NodeId | None = None
    silent: Mapping[NodeId, str] = {}
    by_id: Mapping[NodeId, ClusterMember] = {}
    """Empty when the server cannot say more than who leads and who is silent."""
    session: ClusterSession | None = None
    lost: Sequence[LostNode] = ()
    warnings: Mapping[NodeId, Sequence[NodeWarning]] | None = None
    """By node; None when nobody can say."""
    notes: tuple[str, ...] = ()
    """What could not be learned because the server has no endpoint for it."""
    problems: tuple[str, ...] = ()
    """What could not be learned because a request failed."""

    @property
    def is_partial(self) -> bool:
        """Whether somebody who should be there did not answer."""
        return bool(self.silent or self.lost)


class CheckUp(NamedTuple):
    """The members, and the diagnostics of every node that gave any."""

    members: Members
    has_members: bool
    """Whether the server lists its members."""
    diagnostics: Mapping[NodeId, NodeDiagnostics] | None
    """None when the server has no such endpoint or could not be asked."""


def from_view(view: ClusterView) -> Members:
    """What `/v1/cluster` says."""
    warnings = {node.node_id: node.warnings for node in view.nodes if node.warnings is not None}
    return Members(
        view.master_node_id,
        {node.node_id: node.error or NO_REASON for node in view.nodes if not node.ok},
        {node.node_id: node for node in view.nodes},
        view.session,
        view.lost,
        warnings or None,
    )


def from_diagnostics(cluster: ClusterDiagnostics, ids: Sequence[NodeId]) -> Members:
    """What `/v1/diagnostics/cluster` says about the nodes that the state knows."""
    from skulkd.wire.cluster import NodeWarning

    heard = {node.node_id: node for node in cluster.nodes}
    silent = {}
    for node_id in ids:
        if node_id not in heard:
            silent[node_id] = "the daemon could not reach it"
        elif not heard[node_id].ok:
            silent[node_id] = heard[node_id].error or NO_REASON
    warnings = {
        node.node_id: [NodeWarning(message=line) for line in node.diagnostics.warnings]
        for node in cluster.nodes
        if node.diagnostics is not None
    }
    return Members(cluster.master_node_id, silent, warnings=warnings)


def reason(error: CliError) -> str:
    """Why a request failed, on one line."""
    return "; ".join(error.why) or error.what
