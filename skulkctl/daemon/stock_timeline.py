"""The timeline of a stock Skulk node, completed from its state and its diagnostics.

A stock timeline shows neither downloads nor tasks that no runner has accepted; skulkd shows both
with every runner.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING

from skulkctl.daemon.calls import Steps, ask, call
from skulkctl.daemon.nodes import DIAGNOSTICS_PATH, state
from skulkctl.errors import CliError
from skulkctl.output.units import parse_time

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.diagnostics import ClusterDiagnostics
    from skulkd.wire.downloads import DownloadProgress
    from skulkd.wire.timeline import RunnerWaiting, Timeline, TimelineRunner

_BEFORE_LOADING = ("RunnerIdle", "RunnerConnected")

FirstSeen = MutableMapping[str, datetime]
"""When each task that no rank has accepted was first seen."""


def timeline(first_seen: FirstSeen) -> Steps[Timeline]:
    """The timeline with pending tasks and downloads, as far as the node tells them."""
    from skulkd.wire.diagnostics import ClusterDiagnostics
    from skulkd.wire.timeline import Timeline

    shown = yield from ask(call("GET", f"{DIAGNOSTICS_PATH}/timeline", Timeline))
    diagnostics: ClusterDiagnostics | None = None
    try:
        cluster = yield from ask(state())
        if _untaken_tasks(shown, cluster):
            diagnostics = yield from ask(call("GET", DIAGNOSTICS_PATH, ClusterDiagnostics))
    except CliError:
        return shown  # judged by less: the node has answered the first question
    return complete(shown, cluster, diagnostics, first_seen)


def complete(
    shown: Timeline,
    cluster: ClusterState,
    diagnostics: ClusterDiagnostics | None,
    first_seen: FirstSeen,
) -> Timeline:
    """The same timeline, its runners with what the other answers say. Pure."""
    untaken = _untaken_tasks(shown, cluster)
    for task_id in [known for known in first_seen if known not in untaken]:
        del first_seen[task_id]
    now = parse_time(shown.generated_at)
    since = _since(untaken, _sent_at(diagnostics), first_seen, now)
    runners = [_complete_runner(runner, cluster, untaken, since, now) for runner in shown.runners]
    return shown.model_copy(update={"runners": runners})


def _complete_runner(
    runner: TimelineRunner,
    cluster: ClusterState,
    untaken: Mapping[str, str],
    since: Mapping[str, datetime],
    now: datetime | None,
) -> TimelineRunner:
    pending = [task for task, instance_id in untaken.items() if instance_id == runner.instance_id]
    known = [since[task] for task in pending if task in since]
    age_s = (now - min(known)).total_seconds() if known and now is not None else None
    return runner.model_copy(
        update={
            "pending_task_ids": pending,
            "pending_seconds": None if age_s is None else max(0.0, age_s),
            "waiting": _waiting(runner, cluster),
        }
    )


def _untaken_tasks(shown: Timeline, cluster: ClusterState) -> dict[str, str]:
    """Requests that are pending in the state and that no rank has begun, with their instance."""
    if not cluster.tasks:
        return {}
    from skulkd.wire.tasks import BaseRequestTask

    begun = {runner.active_task_id for runner in shown.runners}
    begun |= {entry.task_id for entry in shown.timeline}
    return {
        task.task_id: task.instance_id
        for task in cluster.tasks.values()
        if isinstance(task, BaseRequestTask)
        and task.task_status == "Pending"
        and task.task_id not in begun
    }


def _sent_at(diagnostics: ClusterDiagnostics | None) -> dict[str, datetime]:
    """When each task was sent to a runner that has not acknowledged it."""
    bundles = [] if diagnostics is None else [node.diagnostics for node in diagnostics.nodes]
    found: dict[str, datetime] = {}
    for bundle in bundles:
        for record in [] if bundle is None else bundle.supervisor_runners:
            moment = parse_time(record.last_task_sent_at or "")
            if moment is not None:
                found |= dict.fromkeys(record.pending_task_ids, moment)
    return found


def _since(
    untaken: Mapping[str, str],
    sent: Mapping[str, datetime],
    first_seen: FirstSeen,
    now: datetime | None,
) -> dict[str, datetime]:
    """Since when each task waits; unknown for one that is seen for the first time."""
    unsent = [task for task in untaken if task not in sent]
    known = {task: first_seen[task] for task in unsent if task in first_seen}
    if now is not None:
        first_seen.update({task: now for task in unsent if task not in first_seen})
    return {**sent, **known}


def _waiting(runner: TimelineRunner, cluster: ClusterState) -> RunnerWaiting | None:
    """The files that a runner waits for before it can load."""
    if runner.status_kind not in _BEFORE_LOADING:
        return None
    downloads = cluster.downloads.get(runner.node_id, ())
    download = next((found for found in downloads if _model_of(found) == runner.model_id), None)
    return None if download is None else _wait_for(download, runner.seconds_in_phase)


def _model_of(download: DownloadProgress) -> str:
    return download.shard_metadata.model_card.model_id


def _wait_for(download: DownloadProgress, seconds: float) -> RunnerWaiting | None:
    from skulkd.wire import downloads
    from skulkd.wire.timeline import RunnerWaiting

    match download:
        case downloads.DownloadPending(downloaded=done, total=total):
            return RunnerWaiting(
                reason="files",
                seconds=seconds,
                detail="not begun",
                done_bytes=done.in_bytes,
                total_bytes=total.in_bytes,
            )
        case downloads.DownloadOngoing(download_progress=progress):
            return RunnerWaiting(
                reason="files",
                seconds=seconds,
                done_bytes=progress.downloaded.in_bytes,
                total_bytes=progress.total.in_bytes,
                bytes_per_second=progress.speed,
                seconds_left=progress.eta_ms / 1000,
            )
        case downloads.DownloadFailed(error_message=message):
            return RunnerWaiting(reason="files", seconds=seconds, detail=message)
        case downloads.DownloadCompleted():
            return None
