"""Health of a node as `/state` tells it. The rules that decide it live in the cluster room."""

from typing import Literal

from pydantic import Field

from skulkd.wire.base import CamelModel

HealthLevel = Literal["ok", "warn", "error"]
HealthCode = Literal["download_failed", "disk_full", "disk_low", "event_log", "unreachable"]
"""`event_log` is ours: the reference says nothing of a log that only counts."""


class HealthReason(CamelModel):
    code: HealthCode
    message: str
    remediation: str = Field(description="What an operator can do about it.")


class NodeHealth(CamelModel):
    level: HealthLevel = Field(default="ok", description="The worst of the reasons.")
    reasons: list[HealthReason] = Field(default_factory=list)
