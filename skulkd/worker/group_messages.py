"""Messages between the nodes of one instance about its ranks: JSON, sent through `Peers`.

Rank 0's node leads. It sends every rank how far it may go (`GroupGoal`), repeatedly, and receives
the state of each rank (`Report`). Each message is complete, so a lost one only costs time.
"""

from enum import IntEnum
from typing import Annotated, Literal, TypeVar

from pydantic import Field, NonNegativeInt, ValidationError

from skulkd.peers import PeerRefused
from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.base import CamelModel, VariantUnion
from skulkd.wire.diagnostics import RunnerPhase
from skulkd.wire.ids import InstanceId, NodeId, TaskId
from skulkd.wire.tasks import ServedTask
from skulkd.worker.endings import Blame, Ending

GOAL = "group.goal"
REPORT = "group.report"
FOLLOW = "task.follow"
DROP = "task.drop"


class GroupLevel(IntEnum):
    """How far the ranks of an attempt may go; each level includes the ones before it."""

    REST = 0
    """No process: a running one is ended."""
    JOIN = 1
    """Reserve a port."""
    START = 2
    """Start the process; all ranks but the last connect."""
    CONNECT = 3
    """The last rank connects, because the ranks it connects to are listening. Then load."""
    WARM = 4
    """Every rank is loaded: warm up and serve."""


class GroupGoal(CamelModel):
    """From rank 0's node to one rank."""

    instance_id: InstanceId
    rank: NonNegativeInt
    attempt: NonNegativeInt
    level: GroupLevel
    ports: list[int] = Field(default_factory=list, description="In rank order, from START on.")
    cause: str | None = Field(default=None, description="Why the last attempt ended.")


class EndingReport(CamelModel):
    """An `Ending` in a report."""

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
            words=ending.message,
            blame=ending.blame,
        )

    @property
    def ending(self) -> Ending:
        return Ending(self.cause, self.restart_helps, self.phase, self.words, self.blame)


ReportedState = Literal["preparing", "refused", "out", "joining", "joined", "up", "ended"]
"""The `RunnerState` of a rank; `up` from the start of its process until it is reaped."""
IN_ATTEMPT = frozenset({"joining", "joined", "up"})


class Report(CamelModel):
    """From one rank to rank 0's node. `life` and `number` tell an outdated one from a new one."""

    instance_id: InstanceId
    rank: NonNegativeInt
    life: str
    number: NonNegativeInt
    attempt: NonNegativeInt
    stage: ReportedState
    port: int | None = None
    status: str = Field(default="RunnerIdle", description="Kind of the runner's status.")
    ending: EndingReport | None = None


class FollowTask(CamelModel):
    """A request that rank 0 runs together with this rank."""

    instance_id: InstanceId
    attempt: NonNegativeInt
    task: Annotated[ServedTask, VariantUnion()]
    generation: GenerationOptions


class DropTask(CamelModel):
    """A request was cancelled."""

    instance_id: InstanceId
    task_id: TaskId


M = TypeVar("M", GroupGoal, Report, FollowTask, DropTask)


def parse_message(kind: type[M], body: bytes, node_id: NodeId) -> M:
    """A message that this node received. Raises PeerRefused."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise PeerRefused(node_id, "bad_message", str(error)) from error
