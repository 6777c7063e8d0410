"""What the state machine wants done. Values only; the daemon carries them out in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from skulkd.cluster.messages import Entry, Message
from skulkd.wire.ids import NodeId


@dataclass(frozen=True, slots=True)
class Send:
    to: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class Broadcast:
    message: Message


@dataclass(frozen=True, slots=True)
class Applied:
    """These entries changed the state."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Replaced:
    """The state is another one now, from a snapshot."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Nobody should wait for this node any more."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Introduce:
    """These two do not see each other; this node sees both."""

    one: NodeId
    other: NodeId


@dataclass(frozen=True, slots=True)
class Renamed:
    """This node goes by this name now; the others should hear it."""

    name: str


@dataclass(frozen=True, slots=True)
class Said:
    """A line for the log."""

    level: Literal["info", "warning"]
    text: str


Action = Send | Broadcast | Applied | Replaced | Lost | Introduce | Renamed | Said


class Outbox:
    """Actions in the order in which they were wanted."""

    def __init__(self) -> None:
        self._actions: list[Action] = []

    def put(self, action: Action) -> None:
        self._actions.append(action)

    def take(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions
