"""The audit log: one line for every change that somebody asked for over HTTP.

Lines of the logger `skulkd.audit`, with the same as fields in the JSON log. Never a body.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar

from aiohttp import web

from skulkd.api.callers import CALLER
from skulkd.api.error_mapping import as_api_error
from skulkd.api.errors import InvalidRequest

log = logging.getLogger("skulkd.audit")

DETAIL_LIMIT = 200

_DETAILS: ContextVar[dict[str, str] | None] = ContextVar("audit_details", default=None)


def note(**details: object) -> None:
    """What the path does not say about the change that is being handled, such as the model."""
    noted = _DETAILS.get()
    if noted is not None:
        noted.update({key: str(value)[:DETAIL_LIMIT] for key, value in details.items()})


class AuditEntry:
    """One change, from its request to its result."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._details: dict[str, str] = {}
        _DETAILS.set(self._details)

    def ended(self, result: int | BaseException) -> None:
        """Write the line. `result`: the status, or what was raised instead of an answer."""
        request, caller = self._request, CALLER.get()
        status = result if isinstance(result, int) else _status_of(result)
        address = request.remote or "unknown"
        path = request.path[:DETAIL_LIMIT]
        told = "".join(f" {key}={value}" for key, value in self._details.items())
        fields = {
            "who": caller.kind,
            "name": None if caller.token is None else caller.token.name,
            "address": address,
            "method": request.method,
            "path": path,
            "result": status,
            **({"details": self._details} if self._details else {}),
        }
        log.info(
            "audit: %s %s by %s from %s -> %s%s",
            request.method, path, caller.who, address, status, told,
            extra={"audit": fields},
        )  # fmt: skip


def _status_of(error: BaseException) -> int | str:
    if (known := as_api_error(error)) is not None:
        return known.status
    match error:
        case InvalidRequest():
            return 422
        case web.HTTPException():
            return error.status
        case asyncio.CancelledError() | ConnectionError():
            return "cut off"
    return 500
