"""The questions that several commands ask a daemon before they can show anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from skulkctl.answers import Answer, is_missing_route, read_json
from skulkctl.client import Client
from skulkctl.errors import CliError, Unreachable
from skulkctl.talk import Talk
from skulkctl.views.nodes import Warn, by_name, lost_items, node_ids, node_items
from skulkctl.views.read import Document, flag, mapping, sequence, text

MEMBERS_PATH = "/v1/cluster"
CLUSTER_PATH = "/v1/diagnostics/cluster"
NODE_PATH = "/v1/diagnostics/node"


@dataclass(frozen=True)
class Snapshot:
    """The cluster's state and the server's clock when it answered."""

    state: Document
    now: datetime
    server_clock: datetime | None

    def nodes(self, roll: Roll | None = None) -> list[dict[str, object]]:
        roll = roll or Roll()
        return node_items(self.state, self.now, roll.master_id, roll.silent, roll.members)

    def nodes_and_lost(self, roll: Roll) -> list[dict[str, object]]:
        """With rows for members that were lost; for listings, not for choosing a node."""
        return by_name([*self.nodes(roll), *lost_items(roll.lost)])


@dataclass(frozen=True)
class Roll:
    """Who is master, which nodes did not answer (with the reason), and what the others said."""

    master_id: str | None = None
    silent: Mapping[str, str] = field(default_factory=dict)
    diagnostics: Mapping[str, Document] | None = None
    """By node id; None when the server has no such endpoint or could not be asked."""
    members: Mapping[str, Document] = field(default_factory=dict)
    """What `/v1/cluster` says of each node; empty on a stock server, which has no such endpoint."""
    session: Document | None = None
    lost: Sequence[Document] = ()
    """Members that left without notice; a stock server does not know any."""

    def warnings(self) -> Mapping[str, Sequence[Warn]] | None:
        """By node id: what each node warns of and what helps; None when nobody can say."""
        told = {
            node_id: [
                (text(one, "message") or "", text(one, "remediation"))
                for one in sequence(member, "warnings")
            ]
            for node_id, member in self.members.items()
            if member.get("warnings") is not None
        }
        if told or self.diagnostics is None:
            return told or None
        return {
            node_id: [(str(line), None) for line in sequence(bundle, "warnings")]
            for node_id, bundle in self.diagnostics.items()
        }


def fetch_state(client: Client) -> Snapshot:
    """`GET /state`; raises Unreachable when what answers is not a Skulk node."""
    answer = client.send("GET", "/state")
    state = None if is_missing_route(answer) else read_json(answer)
    if not isinstance(state, Mapping) or not ({"lastSeen", "topology"} & state.keys()):
        raise Unreachable(
            f"{answer.endpoint} is not a Skulk node",
            f"its answer to GET /state is not a cluster state ({answer.status})",
            hints=["check host and port:  skulkctl context list"],
            details=answer.details(),
        )
    clock = _server_clock(answer)
    return Snapshot(state, clock or datetime.now(UTC), clock)


def _server_clock(answer: Answer) -> datetime | None:
    try:
        return parsedate_to_datetime(answer.header("date") or "")
    except ValueError:
        return None


def fetch_members(client: Client, talk: Talk) -> Roll | None:
    """Who is there and who leads; None when the server is a stock one and cannot say so.

    Every node has been asked just now: one that is there and did not answer is silent.
    """
    try:
        view = client.get_optional(MEMBERS_PATH)
    except CliError as error:
        talk.warning(f"could not ask the nodes: {'; '.join(error.why) or error.what}")
        return None
    return None if view is None else read_members(view)


def read_members(view: object) -> Roll:
    """What `/v1/cluster` says."""
    members = {text(node, "nodeId") or "": mapping(node) for node in sequence(view, "nodes")}
    silent = {
        node_id: text(member, "error") or "no reason given"
        for node_id, member in members.items()
        if flag(member, "ok") is False
    }
    return Roll(
        text(view, "masterNodeId"),
        silent,
        members=members,
        session=mapping(view, "session") or None,
        lost=[mapping(one) for one in sequence(view, "lost")],
    )


def fetch_master(client: Client, state: Document, talk: Talk) -> str | None:
    """The master's id, or None when the server cannot say. A node alone is its own master."""
    ids = node_ids(state)
    if len(ids) == 1:
        return ids[0]
    try:
        answer = client.get_optional(NODE_PATH)
    except CliError as error:
        talk.note(f"the master is not known: {'; '.join(error.why) or error.what}")
        return None
    if answer is None:
        talk.note(f"this server has no {NODE_PATH}: the master is not known")
    return text(answer, "runtime", "masterNodeId")


def call_roll(client: Client, state: Document, talk: Talk) -> Roll:
    """Ask every node through the daemon; a node that is known but not heard is silent."""
    ids = node_ids(state)
    try:
        cluster = client.get_optional(CLUSTER_PATH)
    except CliError as error:
        why = "; ".join(error.why) or error.what
        talk.warning(f"could not ask the nodes: {why}")
        return Roll(None, dict.fromkeys(ids, why))
    if cluster is None:
        talk.note(f"this server has no {CLUSTER_PATH}: roles and silent nodes are not shown")
        return Roll(None, {})
    return read_roll(cluster, ids)


def read_roll(cluster: object, ids: Sequence[str]) -> Roll:
    """What `/v1/diagnostics/cluster` says about the nodes that the state knows."""
    heard = {text(node, "nodeId") or "": node for node in sequence(cluster, "nodes")}
    silent = {}
    for node_id in ids:
        if node_id not in heard:
            silent[node_id] = "the daemon could not reach it"
        elif flag(heard[node_id], "ok") is False:
            silent[node_id] = text(heard[node_id], "error") or "no reason given"
    diagnostics = {
        node_id: mapping(node, "diagnostics")
        for node_id, node in heard.items()
        if mapping(node, "diagnostics")
    }
    return Roll(text(cluster, "masterNodeId"), silent, diagnostics)


def is_stock(client: Client) -> bool:
    """Whether the server has only the reference's endpoints; not when it cannot be asked."""
    try:
        return client.get_optional(MEMBERS_PATH) is None
    except CliError:
        return False


def fetch_placements(client: Client, talk: Talk) -> object | None:
    """What was asked for each placed model and how it moved; None when nobody can say."""
    from skulkctl.views.moves import PLACEMENTS_PATH

    try:
        return client.get_optional(PLACEMENTS_PATH)
    except CliError as error:
        talk.detail(f"moves are not known: {'; '.join(error.why) or error.what}")
        return None
