"""Actions that the state machine requests; `ClusterNode` performs them in order. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from skulkd.cluster.messages import JournalEntry, Message
from skulkd.wire.ids import NodeId


@dataclass(frozen=True, slots=True)
class Send:
    to: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class Broadcast:
    message: Message


@dataclass(frozen=True, slots=True)
class EntriesApplied:
    """These entries changed the state."""

    entries: tuple[JournalEntry, ...]


@dataclass(frozen=True, slots=True)
class StateReplaced:
    """The state was replaced by a snapshot."""


@dataclass(frozen=True, slots=True)
class NodeGone:
    """Pending calls to this node should fail now."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Introduce:
    """Send each of these two nodes the addresses of the other: only this node is linked to both."""

    first: NodeId
    second: NodeId


@dataclass(frozen=True, slots=True)
class Renamed:
    """This node has a new name, which the other nodes have to learn."""

    name: str


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A line for the log."""

    level: Literal["info", "warning"]
    text: str


Action = (
    Send | Broadcast | EntriesApplied | StateReplaced | NodeGone | Introduce | Renamed | LogMessage
)


class ActionQueue:
    """Actions in the order in which they were requested."""

    def __init__(self) -> None:
        self._actions: list[Action] = []

    def put(self, action: Action) -> None:
        self._actions.append(action)

    def drain(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions
