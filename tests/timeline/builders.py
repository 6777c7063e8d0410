"""Timelines made by hand, in the seed's shape, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from skulkctl import verdict
from skulkctl.daemon.reading import read_model
from skulkd.wire.timeline import Timeline

NOW = datetime(2026, 5, 4, 14, 7, 32, tzinfo=UTC)
NODES = {f"node-{number}": f"kite{number + 1}" for number in range(8)}
INSTANCE = "7f3c2b1a"
MODEL = "gemma-4-26b"
TASK = "4be0aa11"

# One entry: how many seconds ago, phase, event, detail, attributes.
Step = tuple[float, str, str, str | None, dict[str, Any]]


def at(ago_s: float) -> str:
    return (NOW - timedelta(seconds=ago_s)).isoformat(timespec="microseconds")


def step(ago_s: float, phase: str, event: str, detail: str | None = None, **attrs: Any) -> Step:
    return ago_s, phase, event, detail, attrs


def enter(ago_s: float, phase: str, detail: str, **attrs: Any) -> Step:
    return step(ago_s, phase, "enter", detail, **attrs)


def leave(ago_s: float, phase: str, detail: str, **attrs: Any) -> Step:
    return step(ago_s, phase, "exit", detail, **attrs)


def admitted(ago_s: float) -> list[Step]:
    """What every rank records before a request is prefilled."""
    return [
        step(ago_s, "task_submission", "submit_text_generation"),
        enter(ago_s, "task_agreement", "mx_all_gather_tasks", candidate_count=1),
        leave(ago_s - 0.1, "task_agreement", "mx_all_gather_tasks", candidate_count=1),
        step(ago_s - 0.2, "prompt_build", "prompt_tokenized", prompt_tokens=512),
    ]


def rank(
    number: int,
    steps: Sequence[Step],
    *,
    status: str = "RunnerRunning",
    alive: bool = True,
    task: str | None = TASK,
    in_phase_s: float | None = None,
    node: str | None = None,
    instance: str = INSTANCE,
    live: dict[str, Any] | None = None,
    pending_s: float | None = None,
    waiting: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One runner and its entries; its phase is that of its newest step."""
    phase = steps[-1][1] if steps else "created"
    since = steps[-1][0] if steps else 40.0
    return {
        "steps": list(steps),
        "runner": {
            "nodeId": node or f"node-{number}",
            "runnerId": f"runner-{instance}-{number}",
            "instanceId": instance,
            "modelId": MODEL,
            "deviceRank": number,
            "worldSize": 0,
            "pid": 4710 + number,
            "processAlive": alive,
            "statusKind": status,
            "phase": phase,
            "phaseDetail": steps[-1][3] if steps else None,
            "secondsInPhase": since if in_phase_s is None else in_phase_s,
            "lastProgressAt": at(steps[-1][0]) if steps else None,
            "activeTaskId": task,
            "activeCommandId": None,
            "lastMlxMemory": None,
            "pendingTaskIds": [] if pending_s is None else ["88d1aa22"],
            "pendingSeconds": pending_s,
            "live": live,
            "waiting": waiting,
        },
    }


def pulse(
    still_s: float,
    site: str | None = None,
    *,
    step: int = 3,
    moves: int = 9,
    busy: bool = True,
    silent_s: float = 0.5,
) -> dict[str, Any]:
    """What a runner tells of itself every second; without a site it is in no wait."""
    return {
        "busy": busy,
        "step": step,
        "moves": moves,
        "site": site,
        "siteSeconds": 0.0 if site is None else still_s,
        "silentSeconds": silent_s,
        "stillSeconds": still_s,
    }


def unstarted(number: int, reason: str, seconds: float, **facts: Any) -> dict[str, Any]:
    """A rank without a process, and what it waits for."""
    waiting = {"reason": reason, "seconds": seconds, "detail": None, **facts}
    return rank(
        number, [], status="RunnerIdle", alive=False, task=None, in_phase_s=seconds, waiting=waiting
    )


def timeline(
    *ranks: dict[str, Any],
    size: int | None = None,
    silent: dict[str, str] | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """The answer of the timeline endpoint for these ranks."""
    entries = []
    for one in ranks:
        runner = one["runner"]
        runner["worldSize"] = size or len(ranks)
        for ago_s, phase, event, detail, attrs in one["steps"]:
            entries.append(
                {
                    "at": at(ago_s),
                    "nodeId": runner["nodeId"],
                    "runnerId": runner["runnerId"],
                    "deviceRank": runner["deviceRank"],
                    "worldSize": runner["worldSize"],
                    "phase": phase,
                    "event": event,
                    "detail": detail,
                    "attrs": attrs,
                    "taskId": runner["activeTaskId"],
                    "commandId": None,
                    "mlxMemory": None,
                }
            )
    return {
        "generatedAt": at(0),
        "localNodeId": "node-0",
        "masterNodeId": "node-0",
        "runners": [one["runner"] for one in ranks],
        "timeline": sorted(entries, key=lambda entry: str(entry["at"])),
        "unreachableNodes": [
            {"nodeId": node, "url": None, "error": error} for node, error in (silent or {}).items()
        ],
        **extra,
    }


def limits(**ours: float) -> dict[str, float]:
    """The limits that a daemon says it keeps."""
    usual = {
        "evalSeconds": 60.0,
        "agreementSeconds": 60.0,
        "warmupSeconds": 300.0,
        "connectSeconds": 120.0,
        "firstReportSeconds": 120.0,
    }
    return {**usual, **ours}


def read(document: Mapping[str, Any]) -> Timeline:
    """The timeline as skulkctl reads it; all of it has to match the contract."""
    return read_model(Timeline, document, pytest.fail)


def assess(
    document: Mapping[str, Any], previous: Mapping[str, Any] | None = None, **given: Any
) -> verdict.Verdict:
    """The verdict on a timeline, and on the one before it."""
    before = None if previous is None else read(previous)
    return verdict.assess(read(document), before, **given)
