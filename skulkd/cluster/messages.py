"""Messages between nodes for election and replication. Values only; `codec` serialises them.

Messages about the journal name their session, so that late ones of an earlier session are ignored.
Field names are the keys on the wire and on disk: they must not change (`reign_s`, `ledger`, ...).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from skulkd.wire.events import Event
from skulkd.wire.ids import EventId, InstanceId, NodeId, TokenId
from skulkd.wire.instances import Instance
from skulkd.wire.state import State
from skulkd.wire.tokens import AccessToken


@dataclass(frozen=True, slots=True, order=True)
class MasterSession:
    """The term of one master. `clock` is larger than any that the master has seen before."""

    clock: int
    master: NodeId


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A session whose history a later one continues, as far as index `head`."""

    session: MasterSession
    head: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event with its index; with the answer to the command that caused it."""

    index: int
    event: Event
    command: str | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """An instance, and the lasting names of its nodes: their ids change at every start."""

    instance: Instance
    names: dict[NodeId, str]


@dataclass(frozen=True, slots=True)
class Deletion:
    """An instance that was deleted by a command, and the event of the deletion."""

    event_id: EventId
    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class LostMember:
    """A node that left without notice, and the id of its last start where that is known."""

    name: str
    node_id: NodeId | None
    since: datetime


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """What a node keeps on disk: placements and settings of its cluster."""

    lineage: str
    """Id of the cluster, the same in all its sessions."""
    clock: int
    index: int
    placements: tuple[Placement, ...] = ()
    tracing: bool = False
    deletions: tuple[Deletion, ...] = ()
    members: tuple[str, ...] = ()
    """Names of the other members; empty after an orderly stop of this node."""
    lost: tuple[LostMember, ...] = ()
    tokens: tuple[AccessToken, ...] = ()
    revoked_tokens: tuple[TokenId, ...] = ()

    @property
    def standing(self) -> tuple[int, int]:
        return (self.clock, self.index)


@dataclass(frozen=True, slots=True)
class NodeHeartbeat:
    """Sent from the event loop: the session, role and journal position of a node."""

    session: MasterSession | None
    leading: bool
    standing: tuple[int, int]
    """Clock of the session that the state belongs to, and its last index."""
    reign_s: float = 0.0
    """Age of the session, with that of a session it continues; the older of two stays."""
    ancestors: tuple[Ancestor, ...] = ()
    members: int = 0
    """Number of connected nodes, the sender included; a node with fewer lacks a link."""
    session_s: float | None = None
    """How long the sender has led this session."""


@dataclass(frozen=True, slots=True)
class Join:
    """Follower to master: request for missing entries. Repeated until answered; idempotent."""

    session: MasterSession
    ledger: MasterSession | None
    """The session that the follower's journal belongs to."""
    head: int
    held: tuple[JournalEntry, ...] = ()
    """Entries of a lost master that the new one lacks."""
    record: ClusterRecord | None = None
    legacy: HandOver | None = None
    """State of another history, whose own master cannot hand over any more."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The next part of the journal. `sync` is the answer to a Join."""

    session: MasterSession
    entries: tuple[JournalEntry, ...]
    head: int
    sync: bool = False
    lineage: str = ""
    ancestors: tuple[Ancestor, ...] = ()


@dataclass(frozen=True, slots=True)
class JournalSnapshot:
    """The whole state, for a node whose history is different or too old."""

    session: MasterSession
    state: State
    lineage: str
    recent: tuple[EventId, ...] = ()
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    ancestors: tuple[Ancestor, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    lost: tuple[LostMember, ...] = ()
    tokens: tuple[AccessToken, ...] = ()
    revoked_tokens: tuple[TokenId, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """From a follower: the journal as far as index `index` is on its disk, or why it is not."""

    session: MasterSession
    index: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class UnplacedList:
    """All unplaced instances as of index `head`; sent every few seconds."""

    session: MasterSession
    head: int
    placements: tuple[Placement, ...]
    members: tuple[str, ...] = ()
    """Names of the members, as the master knows them."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Follower to master: the sender's events that are not in the journal yet."""

    session: MasterSession
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class AlreadyOrdered:
    """Master to follower: these events are in the journal already."""

    session: MasterSession
    event_ids: tuple[EventId, ...]


@dataclass(frozen=True, slots=True)
class RequestHandOver:
    """Master to master: the receiver should hand over to the sender."""

    session: MasterSession


@dataclass(frozen=True, slots=True)
class HandOver:
    """Master to the master that stays: the state of the sender's cluster."""

    session: MasterSession
    state: State
    waiting: tuple[Placement, ...] = ()
    names: dict[NodeId, str] = field(default_factory=dict)
    living: tuple[NodeId, ...] = ()
    """The sender's nodes; they may connect a moment later than this message arrives."""
    deletions: tuple[Deletion, ...] = ()
    lost: tuple[LostMember, ...] = ()
    tokens: tuple[AccessToken, ...] = ()
    revoked_tokens: tuple[TokenId, ...] = ()


@dataclass(frozen=True, slots=True)
class HandOverDone:
    """Answer to a HandOver: the state was merged, up to index `head` of the sender."""

    session: MasterSession
    head: int


@dataclass(frozen=True, slots=True)
class AssignedName:
    """Master to node: its unique name, its own or with a number appended."""

    session: MasterSession
    name: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """Announces an orderly stop of the sender."""


Message = (
    NodeHeartbeat
    | Join
    | Entries
    | JournalSnapshot
    | Stored
    | UnplacedList
    | Submit
    | AlreadyOrdered
    | RequestHandOver
    | HandOver
    | HandOverDone
    | AssignedName
    | Leaving
)
