"""Requests that are open, from the tasks of the state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from skulkctl.names import Candidate, Note, find_one

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState


class RequestItem(TypedDict):
    """A request of a client."""

    taskId: str | None
    commandId: str
    kind: str | None
    status: str | None
    modelId: str | None
    instanceId: str | None


def request_items(state: ClusterState) -> list[RequestItem]:
    """One item per request of a client; loading and warming up are not among them."""
    if not state.tasks:
        return []
    from skulkd.wire.tasks import BaseRequestTask

    return [
        {
            "taskId": task.task_id,
            "commandId": task.command_id,
            "kind": type(task).__name__,
            "status": task.task_status,
            "modelId": task.task_params.model,
            "instanceId": task.instance_id,
        }
        for task in state.tasks.values()
        if isinstance(task, BaseRequestTask)
    ]


def find_request(
    items: Sequence[RequestItem], typed: str, note: Note | None = None
) -> RequestItem | None:
    """The request with that command or task id, or that begins so; None when there is none.

    Raises UsageMistake when several match; `note`: see `names.find_one`.
    """
    candidates = [
        Candidate(
            item,
            tuple(str(item[key]) for key in ("commandId", "taskId") if item[key]),
            (),
            f"{item['commandId']}  {item['modelId']}",
        )
        for item in items
    ]
    return find_one("request", candidates, typed, note)
