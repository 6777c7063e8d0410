"""What was asked for when an instance was placed, and where it has been since.

The contract's instance is closed and has no place for it. So it travels with the instance between
nodes, and on disk, and is left out of every other answer; clients read it at `/v1/placements`.
"""

from typing import Literal

from pydantic import Field

from skulkd.wire.base import CamelModel, UtcTime
from skulkd.wire.ids import InstanceId, ModelId, NodeId

MoveCause = Literal["memory-guard", "staging-failed", "node-lost"]
UnloadCause = Literal["idle", "memory", "request"]
"""Unused for its keep-alive; room for another model; a client asked for it."""


class Move(CamelModel):
    """One change of place."""

    cause: MoveCause
    from_nodes: list[NodeId]
    to_nodes: list[NodeId]
    names: dict[NodeId, str] = Field(
        default_factory=dict, description="Of these nodes, as they were called then."
    )
    reason: str
    attempt: int = Field(description="Counts from 1, since it last served.")
    most: int | None = Field(
        default=None,
        description="After so many it stays; null for a lost node, which has no bound.",
    )


class OnDemand(CamelModel):
    """A request placed the instance, so it is unloaded when nobody uses it."""

    keep_alive_seconds: float | None = Field(
        default=None,
        ge=0,
        description="Unloaded after so long without work; null: only when memory is short.",
    )


class PlacementRecord(CamelModel):
    """Nodes are by id and name: ids change at every start, names last."""

    excluded: dict[NodeId, str] = Field(default_factory=dict)
    only: dict[NodeId, str] = Field(default_factory=dict, description="Empty means any.")
    shape: dict[str, int] = Field(
        default_factory=dict, description="What the files say of the model beyond its card."
    )
    unpacked: bool = Field(
        default=False, description="Its memory was planned with weights unpacked to float32."
    )
    failed: dict[NodeId, str] = Field(
        default_factory=dict, description="Nodes that were the obstacle since it last served."
    )
    attempts: int = Field(default=0, description="Moves since it last served.")
    moves: list[Move] = Field(default_factory=list, description="The latest ones, oldest first.")
    stuck: str | None = Field(
        default=None, description="Why it was not moved although it failed where it is."
    )
    on_demand: OnDemand | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Absent: an operator placed it, and it stays until it is deleted.",
    )


class PlacementAnswer(CamelModel):
    """One placed model at `/v1/placements`."""

    instance_id: InstanceId
    model_id: ModelId
    record: PlacementRecord
    in_use: bool = Field(default=False, description="Has requests, or is being loaded.")
    unloads_at: UtcTime | None = Field(
        default=None,
        description="When it is unloaded unless it is used before; null: not by time alone.",
    )


class WaitingPlacement(CamelModel):
    """A model that has no place now: its node is gone, and it fits nowhere else yet."""

    instance_id: InstanceId
    model_id: ModelId
    ranks: int
    sharding: str = Field(description="`Pipeline` or `Tensor`.")


class PlacementsAnswer(CamelModel):
    placements: list[PlacementAnswer]
    waiting: list[WaitingPlacement] = Field(
        default_factory=list, description="Not in `/state`; placed again when they fit."
    )
