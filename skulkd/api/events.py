"""`GET /events`: the event log of this session as one streamed JSON array."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from skulkd.api.errors import JSON_TYPE
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.api.streams import open_stream, write_deadline
from skulkd.observe.event_log import json_chunks

routes = RouteTable("events")

# Written by hand in snake_case, so the models' own (camelCase) schema would be wrong.
EventObject = dict[str, dict[str, Any]]


@routes.get(
    "/events",
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
