"""Requests that are open, from `/state.tasks`. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from skulkctl.names import Candidate, Note, find_one
from skulkctl.views.read import Document, dig, mapping, tagged, text


def task_items(state: object) -> list[dict[str, object]]:
    """One item per request of a client; loading and warming up are not among them."""
    return [
        {
            "taskId": text(fields, "taskId") or task_id,
            "commandId": text(fields, "commandId"),
            "kind": kind,
            "status": text(fields, "taskStatus"),
            "modelId": text(fields, "taskParams", "model"),
            "instanceId": text(fields, "instanceId"),
        }
        for task_id, task in mapping(state, "tasks").items()
        for kind, fields in [tagged(task)]
        if dig(fields, "commandId")
    ]


def find_task(items: Sequence[Document], typed: str, note: Note | None = None) -> Document | None:
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
