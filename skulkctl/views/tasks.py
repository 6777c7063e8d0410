"""Requests that are open, from `/state.tasks`. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from skulkctl.errors import UsageMistake
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


def find_task(items: Sequence[Document], typed: str) -> Document | None:
    """The request whose command or task id begins so; raises UsageMistake when several do."""
    exact = [item for item in items if typed in (item["taskId"], item["commandId"])]
    begins = [
        item
        for item in items
        if str(item["taskId"]).startswith(typed) or str(item["commandId"]).startswith(typed)
    ]
    found = exact or begins
    if len(found) > 1:
        raise UsageMistake(
            f"{typed} fits {len(found)} requests",
            *(f"{item['commandId']}  {item['modelId']}" for item in found),
            hints=["type more of the id"],
        )
    return found[0] if found else None
