"""Calls about the mswarm gateway node of the daemon that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from skulkctl.daemon.calls import Call, Steps, ask, call

if TYPE_CHECKING:
    from pydantic import BaseModel

    from skulkd.wire.swarm import (
        Enrolment,
        Heartbeat,
        Leave,
        SetupPlan,
        SwarmEnroll,
        SwarmSetup,
        SwarmStatus,
    )

M = TypeVar("M", bound="BaseModel")

_PATH = "/v1/swarm"
_SETUP = f"{_PATH}/setup"
_ENROLL = f"{_PATH}/enroll"
# The daemon waits for the gateway, which may take its time.
_GATEWAY_S = 30.0


def swarm() -> Call[SwarmStatus]:
    """Whether the node is enrolled with a gateway, and how that goes."""
    from skulkd.wire.swarm import SwarmStatus

    return call("GET", _PATH, SwarmStatus)


def swarm_plan(wanted: SwarmSetup | SwarmEnroll) -> Steps[SetupPlan]:
    """What an enrolment would do. The daemon checks everything and sends nothing."""
    from skulkd.wire.swarm import SetupPlanReport, SwarmSetup

    path = _SETUP if isinstance(wanted, SwarmSetup) else _ENROLL
    dry = wanted.model_copy(update={"dry_run": True})
    return (yield from ask(_post(path, SetupPlanReport, dry))).report


def swarm_setup(wanted: SwarmSetup) -> Steps[Heartbeat]:
    """Enrol with an owner's key; then one heartbeat."""
    from skulkd.wire.swarm import HeartbeatReport

    return (yield from ask(_post(_SETUP, HeartbeatReport, wanted))).report


def swarm_enroll(wanted: SwarmEnroll) -> Steps[Enrolment]:
    """Enrol with a one-time token."""
    from skulkd.wire.swarm import EnrolmentReport

    return (yield from ask(_post(_ENROLL, EnrolmentReport, wanted))).report


def swarm_heartbeat() -> Steps[Heartbeat]:
    """One heartbeat now."""
    from skulkd.wire.swarm import HeartbeatReport

    return (yield from ask(_post(f"{_PATH}/run-once", HeartbeatReport))).report


def swarm_pause(*, paused: bool) -> Call[SwarmStatus]:
    """Ask the gateway for no more work, or for work again."""
    from skulkd.wire.swarm import SwarmStatus

    return _post(f"{_PATH}/{'pause' if paused else 'resume'}", SwarmStatus)


def swarm_leave(*, force: bool) -> Steps[Leave]:
    """Forget the enrolment. Refused while work would be lost, unless forced."""
    from skulkd.wire.swarm import LeaveReport, SwarmLeave

    left = _post(f"{_PATH}/leave", LeaveReport, SwarmLeave(force=force))
    return (yield from ask(left)).report


def _post(path: str, answer: type[M], body: BaseModel | None = None) -> Call[M]:
    return call("POST", path, answer, body=body, usual_s=_GATEWAY_S)
