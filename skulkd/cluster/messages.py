"""What nodes say to each other to agree on one state. Values only; `codec` makes bytes of them.

Every message that is about a journal names the session it belongs to, so that what was said in
an earlier reign can do no harm in a later one.
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
class Session:
    """One reign of one master. The clock is larger than any its master had heard of."""

    clock: int
    master: NodeId


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A session whose history a later one continues, as far as index `head`."""

    session: Session
    head: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One event at its place in the journal; with the answer to the command that caused it."""

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
    """An instance that somebody asked to delete, and the event that did it."""

    event_id: EventId
    instance_id: InstanceId


@dataclass(frozen=True, slots=True)
class LostMember:
    """A node that left without notice, and the id of its last start where that is known."""

    name: str
    node_id: NodeId | None
    since: datetime


@dataclass(frozen=True, slots=True)
class Record:
    """What a node keeps on disk: placements and settings of the cluster it was part of."""

    lineage: str
    """Names a cluster through all its sessions."""
    clock: int
    index: int
    placements: tuple[Placement, ...] = ()
    tracing: bool = False
    deletions: tuple[Deletion, ...] = ()
    members: tuple[str, ...] = ()
    """Names of the other nodes that were here, unless this node stopped in order."""
    lost: tuple[LostMember, ...] = ()
    tokens: tuple[AccessToken, ...] = ()
    revoked_tokens: tuple[TokenId, ...] = ()

    @property
    def standing(self) -> tuple[int, int]:
        return (self.clock, self.index)


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life from the event loop: what this node thinks, and how much it knows."""

    session: Session | None
    leading: bool
    standing: tuple[int, int]
    """Clock of the last session that this node's state is of, and its last index."""
    reign_s: float = 0.0
    ancestors: tuple[Ancestor, ...] = ()
    members: int = 0
    """How many nodes it sees, itself included; whoever sees fewer is missing a link."""
    session_s: float | None = None
    """How long the sender has led this session. `reign_s` includes a session it continues."""


@dataclass(frozen=True, slots=True)
class Join:
    """To the master: bring me up to date. Asked again until answered; harmless twice."""

    session: Session
    ledger: Session | None
    head: int
    held: tuple[Entry, ...] = ()
    """Entries of a dead master that the new one lacks."""
    record: Record | None = None
    legacy: Cede | None = None
    """What stands at the end of another history, whose own master cannot cede any more."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The next part of the journal. `sync` is the answer to a Join."""

    session: Session
    entries: tuple[Entry, ...]
    head: int
    sync: bool = False
    lineage: str = ""
    ancestors: tuple[Ancestor, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state, for a node whose own history is another one or too old."""

    session: Session
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

    session: Session
    index: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Placements that have no nodes as of index `head`: the whole list, every few seconds."""

    session: Session
    head: int
    placements: tuple[Placement, ...]
    members: tuple[str, ...] = ()
    """Names of the nodes that the master counts as members."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Events for the master to order. Holds everything of the sender that it has not seen yet."""

    session: Session
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """These events are in the journal already."""

    session: Session
    event_ids: tuple[EventId, ...]


@dataclass(frozen=True, slots=True)
class Conquer:
    """From one master to another: of us two I stay."""

    session: Session


@dataclass(frozen=True, slots=True)
class Cede:
    """From a master that gives up to the one that stays: what its side has placed."""

    session: Session
    state: State
    waiting: tuple[Placement, ...] = ()
    names: dict[NodeId, str] = field(default_factory=dict)
    living: tuple[NodeId, ...] = ()
    """Who is on its side; they may reach the other master a moment later than this."""
    deletions: tuple[Deletion, ...] = ()
    lost: tuple[LostMember, ...] = ()
    tokens: tuple[AccessToken, ...] = ()
    revoked_tokens: tuple[TokenId, ...] = ()


@dataclass(frozen=True, slots=True)
class Ceded:
    """It was taken over, as far as it could be."""

    session: Session
    head: int


@dataclass(frozen=True, slots=True)
class Named:
    """The name the master found for a node: its own, or with a number when that was taken."""

    session: Session
    name: str


@dataclass(frozen=True, slots=True)
class Bye:
    """This node leaves on purpose."""


Message = (
    Beat | Join | Entries | Snapshot | Stored | Waiting | Submit | Known | Conquer | Cede | Ceded
    | Named | Bye
)  # fmt: skip
