"""What the timeline of a stock node lacks, from its state and its diagnostics.

A stock timeline tells neither of downloads nor of tasks that no runner has taken. Our own
daemons tell both with every runner, so nothing more is asked there.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING

from skulkctl.errors import CliError
from skulkctl.placement.downloads import download_of
from skulkctl.placement.requests import request_items
from skulkctl.units import parse_time
from skulkctl.verdict.waiting import FILES
from skulkctl.views.read import Document, mapping, sequence, text

if TYPE_CHECKING:
    from skulkctl.client import Client
    from skulkctl.daemon.client import Daemon
    from skulkctl.daemon.state import ClusterState

DIAGNOSTICS_PATH = "/v1/diagnostics/cluster"
_BEFORE_LOADING = ("RunnerIdle", "RunnerConnected")
_COMING = ("pending", "ongoing", "failed")

FirstSeen = MutableMapping[str, datetime]
"""When each task without a rank was first seen, for servers that do not tell since when."""


def complete_timeline(
    client: Client, daemon: Daemon, timeline: Document, first_seen: FirstSeen | None = None
) -> Document:
    """The timeline with `waiting` and pending tasks for every runner; asks only if they lack."""
    if all("pendingTaskIds" in mapping(runner) for runner in sequence(timeline, "runners")):
        return timeline
    try:
        state = daemon.state()
        asked = bool(_untaken_tasks(timeline, state))
        diagnostics = client.get_optional(DIAGNOSTICS_PATH) if asked else None
    except CliError:
        return timeline  # the node has just answered; without these it is judged by less
    return with_state(timeline, state, diagnostics, {} if first_seen is None else first_seen)


def with_state(
    timeline: Document, state: ClusterState, diagnostics: object, first_seen: FirstSeen
) -> Document:
    """The same timeline, its runners with what the state and the diagnostics tell. Pure."""
    untaken = _untaken_tasks(timeline, state)
    now = parse_time(text(timeline, "generatedAt") or "")
    for task_id in [one for one in first_seen if one not in untaken]:
        del first_seen[task_id]
    sent = _sent_at(diagnostics)
    runners = []
    for runner in sequence(timeline, "runners"):
        pending = [one for one, owner in untaken.items() if owner == text(runner, "instanceId")]
        known = [_since(one, sent, first_seen, now) for one in pending]
        since = [moment for moment in known if moment is not None]
        age_s = (now - min(since)).total_seconds() if since and now is not None else None
        waiting = _waiting(runner, state)
        runners.append(
            {
                **mapping(runner),
                "pendingTaskIds": pending,
                "pendingSeconds": None if age_s is None else max(0.0, age_s),
                "waiting": waiting,
            }
        )
    return {**timeline, "runners": runners}


def _untaken_tasks(timeline: Document, state: ClusterState) -> dict[str, str]:
    """Requests that wait in the state and that no rank has begun, with their instance."""
    begun = {text(runner, "activeTaskId") for runner in sequence(timeline, "runners")}
    begun |= {text(entry, "taskId") for entry in sequence(timeline, "timeline")}
    return {
        str(item["taskId"]): item["instanceId"] or ""
        for item in request_items(state)
        if item["status"] == "Pending" and item["taskId"] not in begun
    }


def _sent_at(diagnostics: object) -> dict[str, datetime]:
    """When each task was sent to a runner that has not acknowledged it."""
    found = {}
    for node in sequence(diagnostics, "nodes"):
        for record in sequence(node, "diagnostics", "supervisorRunners"):
            moment = parse_time(text(record, "lastTaskSentAt") or "")
            for task_id in sequence(record, "pendingTaskIds") if moment is not None else ():
                found[str(task_id)] = moment
    return {task_id: moment for task_id, moment in found.items() if moment is not None}


def _since(
    task_id: str, sent: Mapping[str, datetime], first_seen: FirstSeen, now: datetime | None
) -> datetime | None:
    if task_id in sent:
        return sent[task_id]
    known = task_id in first_seen
    if not known and now is not None:
        first_seen[task_id] = now
    return first_seen[task_id] if known else None


def _waiting(runner: object, state: ClusterState) -> dict[str, object] | None:
    if text(runner, "statusKind") not in _BEFORE_LOADING:
        return None
    download = download_of(state, text(runner, "nodeId") or "", text(runner, "modelId"))
    if download is None or download["status"] not in _COMING:
        return None
    return {
        "reason": FILES,
        "seconds": mapping(runner).get("secondsInPhase"),
        "detail": "not begun" if download["status"] == "pending" else download["error"],
        "doneBytes": download["doneBytes"],
        "totalBytes": download["totalBytes"],
        "bytesPerSecond": download["bytesPerSecond"],
        "secondsLeft": download["secondsLeft"],
        "stillSeconds": None,
    }
