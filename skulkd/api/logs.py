"""`GET /v1/diagnostics/…/logs`: the last lines of a daemon or of one of its runners.

The daemon's newest lines are in memory, older ones in its log file. Bounded in lines and bytes.
Whoever may ask for diagnostics may ask for these; secrets are hidden before a line is kept or
sent.
"""

from __future__ import annotations

import asyncio
from datetime import UTC
from pathlib import Path

from aiohttp import web

from skulkd.api.capture import redactor
from skulkd.api.errors import ApiError
from skulkd.api.node_calls import NodeCall
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.observe.log_history import lines_before
from skulkd.observe.samplers import last_lines
from skulkd.rotating import parts
from skulkd.wire.ids import RunnerId
from skulkd.wire.logs import LogLine, LogLines, LogQuery
from skulkd.worker.log_files import log_path

routes = RouteTable("diagnostics")
_READ_BYTES = 512 * 1024


@routes.get(
    "/v1/diagnostics/node/logs",
    scope="read",
    summary="Last log lines of this node, or of one of its runners",
    query=LogQuery,
    answer=LogLines,
    errors=(404,),
)
async def get_node_logs(request: web.Request, query: LogQuery) -> web.StreamResponse:
    found = await read_logs(services(request), query)
    return await send(request, found.model_dump_json().encode())


@routes.get(
    "/v1/diagnostics/cluster/{node_id}/logs",
    scope="read",
    summary="Last log lines of the named node, or of one of its runners",
    query=LogQuery,
    answer=LogLines,
    errors=(404, 502),
)
async def get_cluster_logs(request: web.Request, query: LogQuery) -> web.StreamResponse:
    return await send(request, await READ_LOGS.forward(request, query))


async def read_logs(node: Services, query: LogQuery) -> LogLines:
    """Raises ApiError when the runner has printed nothing here."""
    if query.runner_id is None:
        return await asyncio.to_thread(_own_lines, node, query)
    directory = node.settings.sources.paths.log_file.parent
    file = log_path(directory, query.runner_id)
    try:
        return await asyncio.to_thread(_runner_lines, node, file, query.runner_id, query)
    except OSError as error:
        what = f"No log of runner {query.runner_id[:200]}: {error.strerror}"
        raise ApiError(404, what) from error


def _own_lines(node: Services, query: LogQuery) -> LogLines:
    """From memory; what is older than this process or than memory, from the log file."""
    ring = node.observe.log
    lost, older = 0, list[LogLine]()
    if query.before is not None:
        kept = []
        older = _older(node, query.before.astimezone(UTC).isoformat(), query.lines)
    elif query.after is None:
        kept = ring.last(query.lines)
        if len(kept) < query.lines:
            older = _older(node, kept[0].at if kept else None, query.lines - len(kept))
    else:
        kept, lost = ring.after(query.after, query.lines)
    return LogLines(
        node_id=node.identity.node_id,
        lines=[*older, *(LogLine(at=one.at, level=one.level, text=one.text) for one in kept)],
        cursor=kept[-1].number + 1 if kept else max(ring.written, query.after or 0),
        lost=lost,
    )


def _older(node: Services, moment: str | None, count: int) -> list[LogLine]:
    file = node.observe.log_file
    if file is None:
        return []
    redact = redactor(node)
    found = lines_before(parts(file.path, file.limits.files), moment, count)
    return [one.model_copy(update={"text": redact(one.text)}) for one in found]


def _runner_lines(node: Services, file: Path, runner_id: RunnerId, query: LogQuery) -> LogLines:
    """The cursor is a position in the file; a file that was rotated is read from its start."""
    size = file.stat().st_size
    redact = redactor(node)
    if query.after is None:
        texts, cursor = last_lines(file, query.lines, _READ_BYTES), size
    else:
        start = query.after if query.after <= size else 0
        with file.open("rb") as source:
            source.seek(start)
            raw = source.read(_READ_BYTES)
        # Only whole lines; the rest of the last one comes with the next question.
        whole = raw[: raw.rfind(b"\n") + 1].splitlines(keepends=True)[: query.lines]
        texts = [one.decode("utf-8", "replace").rstrip("\n") for one in whole]
        cursor = start + sum(map(len, whole))
    return LogLines(
        node_id=node.identity.node_id,
        runner_id=runner_id,
        lines=[LogLine(text=redact(one)) for one in texts],
        cursor=cursor,
    )


READ_LOGS = NodeCall("observe.logs", read_logs, LogQuery, deadline_s=5.0)
