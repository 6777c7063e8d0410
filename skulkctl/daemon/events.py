"""Streams of events, and log lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from skulkctl.daemon.calls import Steps, call, is_stock, query_of, request, segment
from skulkctl.daemon.reading import Unreadable, read_model
from skulkctl.daemon.stock import EVENTS_S, all_events, with_log
from skulkctl.daemon.streams import Lines, StreamCall

if TYPE_CHECKING:
    from skulkd.wire.event_stream import EventLine, EventQuery
    from skulkd.wire.logs import LogLines, LogQuery

_FOLLOW_S = 24 * 3600.0
"""A cluster may be quiet for long; a daemon that stops closes the connection."""


def events(query: EventQuery) -> Steps[StreamCall[EventLine]]:
    """The events of this session, oldest first; with `follow` also those to come."""
    if (yield from is_stock()):
        return all_events(query)
    return StreamCall(
        request("GET", "/v1/events", query=query_of(query)),
        lambda head: Lines(lambda line: _read_event(line, head.note)),
        _FOLLOW_S if query.follow else EVENTS_S,
        is_endless=query.follow,
    )


def can_follow_events() -> Steps[bool]:
    """Whether events can be followed and have times; otherwise all of them are given at once."""
    return not (yield from is_stock())


def _read_event(line: bytes, note: Callable[[str], None]) -> Iterator[EventLine]:
    from skulkd.wire.event_stream import EventLine

    try:
        yield read_model(EventLine, json.loads(line), note)
    except (ValueError, Unreadable) as error:
        note(f"ignored an event that cannot be read: {error}")


def logs(node_id: str | None, query: LogQuery) -> Steps[LogLines]:
    """Log lines of a node's daemon or of one of its runners; None is the node that answers."""
    from skulkd.wire.logs import LogLines

    place = "node" if node_id is None else f"cluster/{segment(node_id)}"
    path = f"/v1/diagnostics/{place}/logs"
    return with_log(call("GET", path, LogLines, query=query_of(query)))
