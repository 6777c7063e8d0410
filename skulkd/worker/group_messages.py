"""What the nodes of one instance tell each other about its ranks: JSON, asked over `Peers`.

Rank 0's node leads. It tells every rank how far it may go (`Goal`), again and again, and hears
where each one is (`Report`). Both say everything each time, so a lost message costs a moment.
"""

from enum import IntEnum
from typing import Literal

from pydantic import Field, NonNegativeInt

from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.base import CamelModel
from skulkd.wire.diagnostics import RunnerPhase
from skulkd.wire.ids import InstanceId, TaskId
from skulkd.wire.tasks import TextGeneration
from skulkd.worker.causes import Blame, Ending

GOAL = "group.goal"
REPORT = "group.report"
FOLLOW = "task.follow"
DROP = "task.drop"


class Level(IntEnum):
    """How far the ranks of an attempt may go; each includes the ones before it."""

    REST = 0
    """No process: what runs is ended."""
    JOIN = 1
    """Choose a port."""
    START = 2
    """Start; all ranks but the last connect."""
    CONNECT = 3
    """The last rank connects: whom it dials is waiting by now. Then load."""
    WARM = 4
    """Every rank is loaded: warm up and serve."""


class Goal(CamelModel):
    """From rank 0's node to one rank."""

    instance_id: InstanceId
    rank: NonNegativeInt
    attempt: NonNegativeInt
    level: Level
    ports: list[int] = Field(default_factory=list, description="In rank order, from START on.")
    cause: str | None = Field(default=None, description="Why the group rests.")


class EndingReport(CamelModel):
    """An `Ending` on the wire."""

    cause: str
    restart_helps: bool
    phase: RunnerPhase | None = None
    words: str | None = None
    blame: Blame = Blame.CULPRIT

    @classmethod
    def of(cls, ending: Ending) -> "EndingReport":
        return cls(
            cause=ending.cause,
            restart_helps=ending.restart_helps,
            phase=ending.phase,
            words=ending.words,
            blame=ending.blame,
        )

    @property
    def ending(self) -> Ending:
        return Ending(self.cause, self.restart_helps, self.phase, self.words, self.blame)


Stage = Literal["preparing", "refused", "out", "joining", "joined", "up", "ended"]
"""`out` is ready for an attempt; `up` from the start of a process until it is reaped."""
IN_ATTEMPT = frozenset({"joining", "joined", "up"})


class Report(CamelModel):
    """From one rank to rank 0's node. `life` and `number` tell a late one from a new one."""

    instance_id: InstanceId
    rank: NonNegativeInt
    life: str
    number: NonNegativeInt
    attempt: NonNegativeInt
    stage: Stage
    port: int | None = None
    status: str = Field(default="RunnerIdle", description="Kind of the runner's status.")
    ending: EndingReport | None = None


class Follow(CamelModel):
    """A request that rank 0 leads and this rank takes part in."""

    instance_id: InstanceId
    attempt: NonNegativeInt
    task: TextGeneration
    generation: GenerationOptions


class Drop(CamelModel):
    """Nobody wants the answer any more."""

    instance_id: InstanceId
    task_id: TaskId
