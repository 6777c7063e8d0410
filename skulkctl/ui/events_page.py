"""Events as rows coloured by how bad they are, and what each of them is about. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from skulkctl.events.rows import event_text
from skulkctl.ui.filters import BadFilter, parse_filter
from skulkctl.ui.lines import Line, line, shorten
from skulkd.wire.event_stream import EventLine

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EMPTY = re.compile(r'\{"(\w+)": \{\}\}')
"""A status without fields, `{"RunnerReady": {}}`, is told by its name."""
HEADERS = ("time", "event", "about")
BAD = ("Failed", "Lost", "TimedOut", "Error", "Refused")
CAREFUL = ("Deleted", "Moved", "Cancelled", "Left", "Drain", "Shutdown")
GOOD = ("Created", "Placed", "Ready", "Joined", "Finished", "Completed")


def role_of(kind: str) -> str | None:
    """How bad an event is, by its name."""
    for role, words in (("problem", BAD), ("attention", CAREFUL), ("ok", GOOD)):
        if any(word in kind for word in words):
            return role
    return None


def log_role(level: str | None) -> str | None:
    """The same for a log line."""
    return {
        "ERROR": "problem",
        "CRITICAL": "problem",
        "WARNING": "attention",
        "DEBUG": "muted",
    }.get(level or "")


def key_of(one: EventLine) -> str:
    """What tells an event from all others; positions begin anew with every session."""
    return f"{one.at} {one.index}"


def owner_of(
    one: EventLine, instance_of_runner: Mapping[str, str], events: Iterable[EventLine]
) -> str | None:
    """The instance that an event is about: by its id, by its runner, or by its task."""
    named = found_in(one, "instance_id", "instanceId")
    if named is not None:
        return named
    runner = found_in(one, "runner_id", "runnerId")
    if runner is not None and runner in instance_of_runner:
        return instance_of_runner[runner]
    task = found_in(one, "task_id", "taskId")
    same = (other for other in events if task and found_in(other, "task_id", "taskId") == task)
    return next((found for other in same if (found := found_in(other, "instance_id"))), None)


def log_matches(text: str, level: str | None, typed: str) -> bool:
    """The same filter for log lines; one that is not valid hides nothing."""
    try:
        return parse_filter(typed).fits({"": text, "level": level or "", "kind": ""})
    except BadFilter:
        return True


def event_rows(
    events: Sequence[EventLine], typed: str, names: Mapping[str, str], columns: int
) -> tuple[list[tuple[str, list[Line | str]]], str]:
    """The events that match, oldest first; and how many, or what is wrong."""
    try:
        wanted = parse_filter(typed)
        kept, trouble = [one for one in events if wanted.fits(_fields(one, names))], ""
    except BadFilter as error:
        kept, trouble = list(events), str(error)
    room = max(10, columns - 44)
    rows = [(key_of(one), _row(one, names, room)) for one in kept]
    return rows, trouble or f"{len(kept)} of {len(events)}"


def _fields(one: EventLine, names: Mapping[str, str]) -> dict[str, str]:
    return {"kind": one.kind, "": f"{one.kind} {about(one, names)}"}


def about(one: EventLine, names: Mapping[str, str]) -> str:
    """The fields of an event, with nodes by name and short ids."""
    text = event_text(one, None, wide=True).split(one.kind, 1)[-1].strip()
    text = _EMPTY.sub(lambda found: found[1], text)
    for node_id, name in names.items():
        text = text.replace(node_id, name)
    return _UUID.sub(lambda found: found[0][:8], text)


def _row(one: EventLine, names: Mapping[str, str], room: int) -> list[Line | str]:
    return [
        line(((one.at or "–")[11:23], "muted")),
        line((shorten(one.kind, 26), role_of(one.kind) or "strong")),
        shorten(about(one, names), room),
    ]


def found_in(one: EventLine, *keys: str) -> str | None:
    """The first value under one of these keys, however deep."""

    def search(value: Any) -> str | None:
        if isinstance(value, Mapping):
            for key in keys:
                if isinstance(value.get(key), str):
                    return str(value[key])
            value = list(value.values())
        if isinstance(value, list):
            return next((found for part in value if (found := search(part))), None)
        return None

    return search(one.event)
