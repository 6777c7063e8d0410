"""`GET /events` and `GET /v1/events`: the event log, as one array or as lines to follow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

from aiohttp import web

from skulkd.api.errors import JSON_TYPE
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import open_stream, write_deadline
from skulkd.observe.event_disk import Record
from skulkd.observe.event_log import json_chunks
from skulkd.observe.event_stream import PIECE_EVENTS, EventFilter, from_disk, from_memory, line_of
from skulkd.wire.event_stream import EventLine, EventQuery

routes = RouteTable("events")
LINES_TYPE = "application/x-ndjson"
FLUSH_S = 1.0

# Written by hand in snake_case, so the models' own (camelCase) schema would be wrong.
EventObject = dict[str, dict[str, Any]]


@routes.get(
    "/events",
    scope="read",
    summary="Events of this session, oldest first; each an object with one key, its kind",
    answer=list[EventObject],
)
async def get_events(request: web.Request) -> web.StreamResponse:
    response = await open_stream(request, {"Content-Type": JSON_TYPE})
    for chunk in json_chunks(services(request).events):
        async with write_deadline(request):
            await response.write(chunk)
    await response.write_eof()
    return response


@routes.get(
    "/v1/events",
    scope="read",
    summary="Events as JSON lines with position and time; can be followed",
    query=EventQuery,
    answer=EventLine,
    content_type=LINES_TYPE,
)
async def get_event_lines(request: web.Request, query: EventQuery) -> web.StreamResponse:
    response = await open_stream(request, {"Content-Type": LINES_TYPE})
    left = query.limit
    async for records in _pieces(services(request), query):
        wanted = records if left is None else records[:left]
        async with write_deadline(request):
            await response.write(b"".join(map(line_of, wanted)))
        left = None if left is None else left - len(wanted)
        if left == 0:
            break
    await response.write_eof()
    return response


async def _pieces(node: Services, query: EventQuery) -> AsyncIterator[list[Record]]:
    """First what is on disk, then what is in memory, then, if asked for, what comes."""
    kinds = frozenset(one.strip() for one in query.kind.split(",") if one.strip())
    wanted = EventFilter(query.after, query.since, kinds)
    position = query.after
    writer = node.observe.event_writer
    if writer is not None and not writer.status.counting_only:
        # What was appended before this moment shall be in the file.
        await asyncio.to_thread(writer.flush, FLUSH_S)
        records = from_disk(writer.disk.file, EventFilter(query.after))
        while piece := await asyncio.to_thread(lambda: list(islice(records, PIECE_EVENTS))):
            position = piece[-1].index + 1
            yield [one for one in piece if wanted.fits(one)]
    historic = writer is None
    while True:
        changed = node.journal.next_change
        # Memory does not know when: now is right for what just came, and for nothing else.
        at_s = 0.0 if historic else time.time()
        piece = from_memory(node.events, position, wanted, at_s)
        if piece:
            position = piece[-1].index + 1
            yield [one for one in piece if wanted.fits(one)]
            continue
        historic = False
        if not query.follow:
            return
        await changed.wait()
