"""Health of a node as `/state` tells it. The rules that decide it live in the cluster room."""

from typing import Literal

from pydantic import Field

from skulkd.wire.base import CamelModel

HealthLevel = Literal["ok", "warn", "error"]
HealthCode = Literal[
    "download_failed",
    "disk_full",
    "disk_low",
    "event_log",
    "unreachable",
    "task_down",
    "state_not_written",
    "bridge_loop",
]
"""Ours are `event_log` (events are counted, not stored), `task_down` (a background task of the
daemon has failed and is being restarted), `state_not_written` (commands are refused) and
`bridge_loop` (Thunderbolt bridges and cables form a loop)."""
EVENT_LOG_DEGRADED = "the event log only counts"
"""A warning of a node that begins so becomes the reason `event_log`."""


class HealthReason(CamelModel):
    code: HealthCode
    message: str
    remediation: str = Field(description="What an operator can do about it.")


class NodeHealth(CamelModel):
    level: HealthLevel = Field(default="ok", description="The worst of the reasons.")
    reasons: list[HealthReason] = Field(default_factory=list)
