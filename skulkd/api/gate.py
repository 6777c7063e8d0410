"""What stands between the entry and every handler: scope and limits of tokens, the audit log.

The cluster secret and the machine itself may do everything and pass it at the cost of one look.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from skulkd.api.audit import AuditEntry
from skulkd.api.callers import CALLER, SCOPE_MISSING, check_scope
from skulkd.api.errors import ApiError
from skulkd.api.routes import Route
from skulkd.api.token_uses import TokenUses

Bound = Callable[[web.Request], Awaitable[web.StreamResponse]]


def gated(route: Route, handle: Bound, uses: TokenUses) -> Bound:
    """The handler, for those who may use it."""
    if route.open_to_all:
        return handle

    async def checked(request: web.Request) -> web.StreamResponse:
        token = CALLER.get().token
        if token is None:
            return await handle(request)
        try:
            check_scope(token, route.scope)
        except ApiError:
            uses.refused(token, SCOPE_MISSING)
            raise
        with uses.admitted(token, counted=route.counted):
            return await handle(request)

    return _audited(checked) if route.audited else checked


def _audited(handle: Bound) -> Bound:
    async def audited(request: web.Request) -> web.StreamResponse:
        change = AuditEntry(request)
        try:
            response = await handle(request)
        except BaseException as error:
            change.ended(error)
            raise
        change.ended(response.status)
        return response

    return audited
