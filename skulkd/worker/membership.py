"""One rank's side of its group: which attempt it is in, how far it may go, and when it must end.

Pure. Rank 0's node leads, and has a membership like every other.
"""

from collections.abc import Callable

from skulkd.worker.causes import Ending
from skulkd.worker.group_messages import Goal, Level


class Membership:
    """`obey` what the leader says; `close` when the attempt is over here."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._closed = 0
        self.heard_at = clock()
        """When the leader last spoke."""
        self.attempt = 0
        self.level = Level.REST
        self.ports: tuple[int, ...] = ()
        self.ending: Ending | None = None
        """How this rank's part of the attempt ended."""
        self.rested = True
        """Whether the leader itself has ended the attempt."""
        self.cause: str | None = None
        """Why the group rests, as the leader found."""

    def obey(self, goal: Goal) -> None:
        """Goals of older attempts, and of one that is over here, change nothing."""
        self.heard_at = self._clock()
        if goal.attempt < self.attempt:
            return
        if goal.level is Level.REST:
            if goal.attempt > self.attempt:
                self.ending = None
            self.attempt = self._closed = goal.attempt
            self.level, self.ports, self.rested = Level.REST, (), True
            self.cause = goal.cause
        elif goal.attempt > self._closed:
            newer = goal.attempt > self.attempt
            self.attempt = goal.attempt
            self.level = goal.level if newer else max(self.level, goal.level)
            self.ports = tuple(goal.ports) or (() if newer else self.ports)
            self.ending = self.cause = None
            self.rested = False

    def close(self, ending: Ending) -> None:
        """This rank is out of the attempt, whatever the leader says about it later."""
        self._closed = self.attempt
        self.level, self.ports = Level.REST, ()
        if self.ending is None or ending.blame < self.ending.blame:
            self.ending = ending
