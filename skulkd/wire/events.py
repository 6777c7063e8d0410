"""The event log. `GET /events` writes it in snake_case: `model_dump_json(by_alias=False)`."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from skulkd.wire.base import TaggedModel, UtcTime, VariantUnion
from skulkd.wire.cards import ModelCard
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.gathered import GatheredInfo
from skulkd.wire.ids import (
    CommandId,
    EventId,
    InstanceId,
    ModelId,
    NodeId,
    RunnerId,
    TaskId,
    TokenId,
    new_event_id,
)
from skulkd.wire.instances import Instance
from skulkd.wire.placement_record import MoveCause, OnDemand, UnloadCause
from skulkd.wire.runners import RunnerStatus
from skulkd.wire.tasks import Task, TaskStatus
from skulkd.wire.tokens import AccessToken
from skulkd.wire.topology import Connection
from skulkd.wire.tracing import TraceEventResponse


class BaseEvent(TaggedModel):
    event_id: EventId = Field(default_factory=new_event_id)


class TestEvent(BaseEvent):
    """Changes nothing; for tests of the log itself."""

    __test__ = False  # the name makes pytest want to collect it


class TaskCreated(BaseEvent):
    task_id: TaskId
    task: Task


class TaskStatusUpdated(BaseEvent):
    task_id: TaskId
    task_status: TaskStatus


class TaskFailed(BaseEvent):
    task_id: TaskId
    error_type: str
    error_message: str


class TaskDeleted(BaseEvent):
    task_id: TaskId


class TaskAcknowledged(BaseEvent):
    task_id: TaskId


class InstanceCreated(BaseEvent):
    instance: Instance


class InstanceDeleted(BaseEvent):
    instance_id: InstanceId


class InstanceMoved(BaseEvent):
    """It failed where it was, or its node was lost, and begins anew elsewhere under its id."""

    instance_id: InstanceId
    model_id: ModelId
    cause: MoveCause
    from_nodes: list[NodeId]
    to_nodes: list[NodeId]
    names: dict[NodeId, str] = Field(default_factory=dict)
    reason: str
    attempt: int
    most: int | None = None


class InstanceMoveRefused(BaseEvent):
    """It failed where it is and stays there, because nothing else is possible."""

    instance_id: InstanceId
    model_id: ModelId
    nodes: list[NodeId]
    cause: MoveCause
    reason: str
    refusal: str = Field(description="The kind of the planner's refusal.")
    why_not: str
    attempt: int
    most: int


class InstanceRequested(BaseEvent):
    """A request for a model that was not placed has it placed; its creation follows."""

    instance_id: InstanceId
    model_id: ModelId
    nodes: list[NodeId]
    on_demand: OnDemand


class InstanceKeepAliveChanged(BaseEvent):
    """How long an instance stays without work."""

    instance_id: InstanceId
    model_id: ModelId
    on_demand: OnDemand | None = Field(description="Null: it stays until it is deleted.")


class InstanceUnloaded(BaseEvent):
    """An instance that was placed on demand goes; its deletion follows."""

    instance_id: InstanceId
    model_id: ModelId
    cause: UnloadCause
    idle_seconds: float
    wanted_by: ModelId | None = Field(
        default=None, description="The model that needs its memory, where that is the cause."
    )


class RunnerStatusUpdated(BaseEvent):
    runner_id: RunnerId
    runner_status: RunnerStatus


class NodeTimedOut(BaseEvent):
    node_id: NodeId


class NodeLost(BaseEvent):
    """A member left without notice. Its name is what lasts; its id was of that start only."""

    name: str
    node_id: NodeId | None = None
    since: UtcTime


class NodeLossCleared(BaseEvent):
    """A lost member is back, was stopped after all, or an operator gave it up."""

    name: str
    cause: Literal["returned", "stopped", "forgotten"]


class NodeGatheredInfo(BaseEvent):
    node_id: NodeId
    when: UtcTime
    info: GatheredInfo


class NodeDownloadProgress(BaseEvent):
    download_progress: DownloadProgress


class ChunkGenerated(BaseEvent):
    """Kept for logs of older nodes; tokens travel outside the log."""

    command_id: CommandId
    chunk: dict[str, Any]


class InputChunkReceived(BaseEvent):
    command_id: CommandId
    chunk: dict[str, Any]


class TopologyEdgeCreated(BaseEvent):
    conn: Connection


class TopologyEdgeDeleted(BaseEvent):
    conn: Connection


class TracesCollected(BaseEvent):
    task_id: TaskId
    rank: int
    traces: list[TraceEventResponse]


class TracesMerged(BaseEvent):
    task_id: TaskId
    traces: list[TraceEventResponse]


class TracingStateChanged(BaseEvent):
    enabled: bool


class CustomModelCardAdded(BaseEvent):
    model_card: ModelCard


class CustomModelCardDeleted(BaseEvent):
    model_id: ModelId


class TokenCreated(BaseEvent):
    """An access token is in force. What it says of the token is not enough to use it."""

    token: AccessToken


class TokenRevoked(BaseEvent):
    """For good: no later event brings the token back."""

    token_id: TokenId
    name: str


OWN_EVENTS = (
    InstanceMoved,
    InstanceMoveRefused,
    InstanceRequested,
    InstanceKeepAliveChanged,
    InstanceUnloaded,
    NodeLost,
    NodeLossCleared,
    TokenCreated,
    TokenRevoked,
)
"""Kinds that the reference does not know; its `/events` leaves them out."""

Event = Annotated[
    TestEvent
    | TaskCreated
    | TaskStatusUpdated
    | TaskFailed
    | TaskDeleted
    | TaskAcknowledged
    | InstanceCreated
    | InstanceDeleted
    | InstanceMoved
    | InstanceMoveRefused
    | InstanceRequested
    | InstanceKeepAliveChanged
    | InstanceUnloaded
    | RunnerStatusUpdated
    | NodeTimedOut
    | NodeLost
    | NodeLossCleared
    | NodeGatheredInfo
    | NodeDownloadProgress
    | ChunkGenerated
    | InputChunkReceived
    | TopologyEdgeCreated
    | TopologyEdgeDeleted
    | TracesCollected
    | TracesMerged
    | TracingStateChanged
    | CustomModelCardAdded
    | CustomModelCardDeleted
    | TokenCreated
    | TokenRevoked,
    VariantUnion(),
]

EVENT_KINDS = tuple(kind.__name__ for kind in get_args(get_args(Event)[0]) if kind is not TestEvent)
"""The tags of all events that happen in a cluster."""
