"""Events and log lines as lines of text. Pure."""

from __future__ import annotations

import json
from typing import TypeVar

from skulkctl.daemon.reading import Unreadable, read_model
from skulkctl.output.layout import clip, hanging
from skulkctl.output.terminal import harmless, printable, width
from skulkctl.output.units import age_text
from skulkctl.placement.instances import short_instance
from skulkd.wire.event_stream import EventLine
from skulkd.wire.events import BaseEvent, InstanceMoved, InstanceMoveRefused, InstanceUnloaded
from skulkd.wire.logs import LogLine

_WIDE = 120
"""Narrower terminals show the time without the day."""

E = TypeVar("E", bound=BaseEvent)


def event_text(line: EventLine, room: int | None, *, wide: bool) -> str:
    """Position, time, kind and fields. On a terminal of `room` cells it is cut, or wraps."""
    at = (line.at or "-")[:23]
    if room is not None and room < _WIDE:
        at = at[11:] or at
    head = printable(f"{line.index:>7}  {at}  {line.kind:<22} ")
    about = printable(_about(line))
    if room is None:
        return f"{head}{about}".rstrip() + "\n"
    if wide:
        return "".join(f"{part.rstrip()}\n" for part in hanging(head, about, room))
    return f"{head}{clip(about, max(1, room - width(head)))}".rstrip() + "\n"


def _about(line: EventLine) -> str:
    """A sentence for moves and unloads, else the fields as they are."""
    moved = _as(InstanceMoved, line)
    if moved is not None:
        return _move_text(moved)
    refused = _as(InstanceMoveRefused, line)
    if refused is not None:
        return _refusal_text(refused)
    unloaded = _as(InstanceUnloaded, line)
    if unloaded is not None:
        return _unload_text(unloaded)
    return " ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for fields in line.event.values()
        for key, value in fields.items()
        if key not in BaseEvent.model_fields
    )


def _as(kind: type[E], line: EventLine) -> E | None:
    """The event as its model; None when it is of another kind, or cannot be read as one."""
    if line.kind != kind.__name__:
        return None
    try:
        return read_model(kind, line.event, lambda left_out: None)
    except Unreadable:
        return None


def _move_text(event: InstanceMoved) -> str:
    before, after = (
        ",".join(event.names.get(node, node) for node in nodes)
        for nodes in (event.from_nodes, event.to_nodes)
    )
    attempt = str(event.attempt) if event.most is None else f"{event.attempt} of {event.most}"
    name = f"{short_instance(event.instance_id)} {event.model_id}"
    return f"{name} {before} -> {after} (attempt {attempt}) {event.reason}"


def _refusal_text(event: InstanceMoveRefused) -> str:
    name = f"{short_instance(event.instance_id)} {event.model_id} {','.join(event.nodes)}"
    why = f"{event.refusal}: {event.why_not}"
    attempt = f"{event.attempt} of {event.most}"
    return f"{name} not moved: {why}; (attempt {attempt}) {event.reason}"


def _unload_text(event: InstanceUnloaded) -> str:
    causes = {
        "idle": f"idle for {age_text(event.idle_seconds)}",
        "memory": f"{event.wanted_by} needs its memory",
        "request": "a client asked for it",
    }
    return f"{short_instance(event.instance_id)} {event.model_id} {causes[event.cause]}"


def log_text(line: LogLine, room: int | None) -> str:
    """Time, level and text; what a runner printed has neither time nor level."""
    head = f"{line.at[:23]}Z {line.level:<8} " if line.at and line.level else ""
    return "".join(f"{part}\n" for part in hanging(head, harmless(line.text), room))
