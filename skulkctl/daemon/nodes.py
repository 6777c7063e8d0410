"""Calls about the cluster and its nodes: the state, the members, forgetting a lost one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon.answers import raise_for_status
from skulkctl.daemon.calls import Call, Steps, ask, call, is_stock, request, segment
from skulkctl.daemon.members import CheckUp, Members, from_diagnostics, from_view, reason
from skulkctl.daemon.state import ClusterState, read_state
from skulkctl.errors import CliError, RouteMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skulkd.wire.admin import RestartAnswer
    from skulkd.wire.cluster import ClusterView, ForgetAnswer
    from skulkd.wire.diagnostics import NodeDiagnostics
    from skulkd.wire.ids import NodeId

MEMBERS_PATH = "/v1/cluster"
READY_PATH = "/readyz"
DIAGNOSTICS_PATH = "/v1/diagnostics/cluster"
OWN_DIAGNOSTICS_PATH = "/v1/diagnostics/node"


def state() -> Call[ClusterState]:
    """The cluster as the node that answers sees it."""
    return Call(request("GET", "/state"), read_state)


def cluster() -> Call[ClusterView]:
    """The members, each asked just now. Raises RouteMissing on a stock node."""
    from skulkd.wire.cluster import ClusterView

    return call("GET", MEMBERS_PATH, ClusterView)


def members(ids: Sequence[NodeId]) -> Steps[Members]:
    """Who is there, who leads, who is silent. Never raises: what failed is in the answer."""
    if not (yield from is_stock()):
        try:
            return from_view((yield from ask(cluster())))
        except CliError as error:
            problem = f"could not query the nodes: {reason(error)}"
            found = (yield from _roll_call(ids)).members
            return found._replace(problems=(problem, *found.problems))
    return (yield from _roll_call(ids)).members


def check_up(ids: Sequence[NodeId]) -> Steps[CheckUp]:
    """The members and the diagnostics of all nodes. Never raises."""
    found = yield from _roll_call(ids)
    if (yield from is_stock()):
        return found
    try:
        members = from_view((yield from ask(cluster())))
    except CliError as error:
        problem = f"could not query the nodes: {reason(error)}"
        members = found.members._replace(problems=(problem, *found.members.problems))
        return found._replace(members=members)
    silent = {**found.members.silent, **members.silent}
    warnings = members.warnings or found.members.warnings
    gaps = (found.members.notes, found.members.problems)
    members = members._replace(silent=silent, warnings=warnings, notes=gaps[0], problems=gaps[1])
    return CheckUp(members, True, found.diagnostics)


def _roll_call(ids: Sequence[NodeId]) -> Steps[CheckUp]:
    """Members by the diagnostics of all nodes; one that is known and not heard is silent."""
    from skulkd.wire.diagnostics import ClusterDiagnostics

    try:
        answer = yield from ask(call("GET", DIAGNOSTICS_PATH, ClusterDiagnostics))
    except RouteMissing:
        what = "roles and silent nodes are not shown"
        note = f"this server has no {DIAGNOSTICS_PATH}: {what}"
        alone = Members(ids[0]) if len(ids) == 1 else Members(notes=(note,))
        return CheckUp(alone, False, None)
    except CliError as error:
        why = reason(error)
        silent = dict.fromkeys(ids, why)
        problem = f"could not query the nodes: {why}"
        return CheckUp(Members(silent=silent, problems=(problem,)), False, None)
    heard = {node.node_id: node.diagnostics for node in answer.nodes}
    diagnostics = {node_id: found for node_id, found in heard.items() if found is not None}
    return CheckUp(from_diagnostics(answer, ids), False, diagnostics)


def ready() -> Call[None]:
    """Whether the node can serve. Raises ServerFailed with the reason when it cannot."""
    return Call(request("GET", READY_PATH), raise_for_status)


def master(ids: Sequence[NodeId]) -> Steps[NodeId | None]:
    """The master's id, or None when the server cannot say. A node alone is its own master."""
    if len(ids) == 1:
        return ids[0]
    try:
        found = yield from ask(node_diagnostics())
    except CliError:
        return None
    return found.runtime.master_node_id


def node_diagnostics(node_id: str | None = None) -> Call[NodeDiagnostics]:
    """What a node of the cluster, or else the one that answers, knows about itself."""
    from skulkd.wire.diagnostics import NodeDiagnostics

    path = OWN_DIAGNOSTICS_PATH if node_id is None else f"{DIAGNOSTICS_PATH}/{segment(node_id)}"
    return call("GET", path, NodeDiagnostics)


def restart_node(node_id: str) -> Call[RestartAnswer]:
    """Replace the daemon of one node by a fresh process."""
    from skulkd.wire.admin import RestartAnswer

    return call("POST", "/admin/restart", RestartAnswer, query=[("node_id", node_id)])


def forget(name: str) -> Call[ForgetAnswer]:
    """Stop listing a node that was lost."""
    from skulkd.wire.cluster import ForgetAnswer, ForgetRequest

    return call("POST", "/v1/cluster/forget", ForgetAnswer, body=ForgetRequest(name=name))
