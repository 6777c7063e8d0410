"""Identifiers as distinct string types, so that a node id cannot pass for a runner id."""

from typing import NewType
from uuid import uuid4

NodeId = NewType("NodeId", str)
InstanceId = NewType("InstanceId", str)
RunnerId = NewType("RunnerId", str)
TaskId = NewType("TaskId", str)
CommandId = NewType("CommandId", str)
EventId = NewType("EventId", str)
ModelId = NewType("ModelId", str)
TokenId = NewType("TokenId", str)


def new_event_id() -> EventId:
    return EventId(str(uuid4()))
