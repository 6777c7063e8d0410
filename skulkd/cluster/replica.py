"""This node's copy of the state: events go in, in order; the version says that it changed."""

from __future__ import annotations

from skulkd.cluster.reducer import apply
from skulkd.wire.events import Event
from skulkd.wire.state import State


class Replica:
    """The state as far as this node knows it."""

    def __init__(self, state: State | None = None) -> None:
        self._state = State() if state is None else state
        self.version = 0

    @property
    def state(self) -> State:
        return self._state

    def apply(self, event: Event, index: int) -> None:
        """Raises `OutOfOrder` unless this is the next event."""
        self.replace(apply(self._state, event, index))

    def replace(self, state: State) -> None:
        """Take over a state that was made elsewhere."""
        self._state = state
        self.version += 1
