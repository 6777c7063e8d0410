"""The one wrapper around every request: id, access, errors to bodies, metrics, access line.

It stands before aiohttp's router, which costs more than most handlers, and must stay cheap.
It knows no route by name.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler
from aiohttp.web_request import BaseRequest

from skulkd.api import errors
from skulkd.api.auth import AuthRefusal, authorization, cors_headers, decide
from skulkd.api.callers import ANYONE, CALLER, Caller
from skulkd.api.error_mapping import as_api_error
from skulkd.api.lifecycle import Lifecycle
from skulkd.api.metrics import Metrics
from skulkd.api.protocol import Entry, RequestHandler
from skulkd.api.services import Access
from skulkd.api.streams import REQUEST_ID_HEADER
from skulkd.log import REQUEST_ID

UNMATCHED = "unmatched"
_CLIENT_HEADERS = "Authorization, Content-Type, X-Api-Key, Anthropic-Version"

log = logging.getLogger(__name__)


def make_entry(
    access: Access,
    lifecycle: Lifecycle,
    metrics: Metrics,
    literals: Mapping[tuple[str, str], Handler],
    public_paths: frozenset[str],
    error_formats: Mapping[str, errors.ErrorFormat],
) -> Entry:
    """What to put around the router. `literals` are found by method and path without it.

    `error_formats` are of paths whose clients expect other bodies of errors than ours.
    """
    prefix = secrets.token_hex(4)
    numbers = itertools.count(1)
    guard = _Guard(access, lifecycle, public_paths)
    open_requests, unheard = lifecycle.open_requests, lifecycle.unheard
    has_cors = bool(access.policy.cors_origins)
    is_verbose = log.isEnabledFor(logging.DEBUG)
    count = metrics.count

    def around(router: RequestHandler) -> RequestHandler:
        async def entry(base: BaseRequest) -> web.StreamResponse:
            started = time.perf_counter()
            request = cast("web.Request", base)
            request_id = f"{prefix}-{next(numbers):x}"
            REQUEST_ID.set(request_id)
            path = request.rel_url.path_safe
            literal = literals.get((request.method, path))
            routed = False
            task = _current_task()
            open_requests.add(task)
            unheard.discard(base.protocol)
            try:
                response: web.StreamResponse | None = guard.before(request)
                if response is None:
                    routed = literal is None
                    response = await (literal or router)(request)
            except asyncio.CancelledError:
                response = guard.cancelled(request, error_formats.get(path))
            except Exception as error:  # noqa: BLE001 - root of a request: logged or answered
                response = _failure(request, error, request_id, error_formats.get(path))
            finally:
                open_requests.discard(task)
            if not response.prepared:
                response.headers[REQUEST_ID_HEADER] = request_id
                if has_cors:
                    guard.after(request, response)
            status = response.status
            seconds = time.perf_counter() - started
            template = path if literal else _template(request) if routed else UNMATCHED
            count(template, request.method, status, seconds)
            if is_verbose or status >= 500:
                _access_line(request, status, seconds)
            return response

        return entry

    return around


class _Guard:
    """What happens around every handler, by the access rules and the state of the daemon."""

    def __init__(self, access: Access, lifecycle: Lifecycle, public_paths: frozenset[str]) -> None:
        self._access = access
        self._public_paths = public_paths
        self._policy = access.policy
        self._lifecycle = lifecycle

    def before(self, request: web.Request) -> web.Response | None:
        """An answer that makes the handler needless; raises when the request may not pass."""
        headers = request.headers
        policy = self._policy
        origin = headers.get(hdrs.ORIGIN)
        if request.method == "OPTIONS" and origin in policy.cors_origins:
            return _preflight()
        if self._lifecycle.stopping and request.path not in self._access.open_paths:
            raise errors.ShuttingDown
        caller = decide(
            request.remote, authorization(headers), headers.get(hdrs.HOST), origin, policy
        )
        if isinstance(caller, Caller):
            CALLER.set(caller)
        elif request.path in self._public_paths:
            CALLER.set(ANYONE)
        else:
            raise _refused(caller)
        return None

    def after(self, request: web.Request, response: web.StreamResponse) -> None:
        """Tell browsers of configured origins that they may read the answer."""
        origin = request.headers.get(hdrs.ORIGIN)
        response.headers.update(cors_headers(origin, self._policy))

    def cancelled(
        self, request: web.Request, error_format: errors.ErrorFormat | None
    ) -> web.Response:
        """A request that the shutdown cut off gets an answer; any other cancellation goes on."""
        begun = request.writer.output_size > 0
        if not self._lifecycle.failing_requests or request.transport is None or begun:
            raise asyncio.CancelledError
        _current_task().uncancel()
        return (error_format or errors.refusal)(errors.ShuttingDown())


def _refused(refusal: AuthRefusal) -> errors.ApiError:
    challenge = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
    told = {"kind": refusal.code, "hints": list(refusal.hints)}
    return errors.ApiError(refusal.status, refusal.message, headers=challenge, refusal=told)


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a request is handled outside of any task")
    return task


def _preflight() -> web.Response:
    return web.Response(
        status=204,
        headers={
            hdrs.SERVER: errors.SERVER,
            hdrs.ACCESS_CONTROL_ALLOW_METHODS: "GET, POST, PUT, DELETE",
            hdrs.ACCESS_CONTROL_ALLOW_HEADERS: _CLIENT_HEADERS,
            hdrs.ACCESS_CONTROL_MAX_AGE: "600",
        },
    )


def _failure(
    request: web.Request,
    error: Exception,
    request_id: str,
    error_format: errors.ErrorFormat | None,
) -> web.Response:
    """The body that goes with an exception; a client that went away gets none."""
    if request.writer.output_size > 0:
        _break_off(request, error)
    known = as_api_error(error)
    if error_format is not None and isinstance(error, errors.InvalidRequest):
        known = errors.ApiError(400, errors.invalid_text(error))
    if known is not None:
        return (error_format or errors.refusal)(known)
    match error:
        case errors.InvalidRequest():
            return errors.answer(422, errors.detail_items(error.items))
        case web.HTTPNotFound():
            return errors.unknown_route(request.method, request.path)
        case web.HTTPMethodNotAllowed():
            allow = {"Allow": ", ".join(sorted(error.allowed_methods))}
            return errors.answer(405, errors.detail_text("Method Not Allowed"), headers=allow)
        case web.HTTPException():
            return errors.answer(error.status, errors.envelope(error.status, error.reason))
    if isinstance(error, ConnectionError) and request.transport is None:
        raise error
    log.error("unexpected error in %s %s", request.method, request.path, exc_info=error)
    text = f"unexpected error, see the daemon's log for request {request_id}"
    return (error_format or errors.refusal)(errors.ApiError(500, text))


def _break_off(request: web.Request, error: Exception) -> NoReturn:
    """An answer that failed half-way: no second one may follow, the client must see the break."""
    if not isinstance(error, ConnectionError):
        log.error("answer to %s %s broke off", request.method, request.path, exc_info=error)
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("the answer broke off") from error


def _template(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return UNMATCHED if resource is None else resource.canonical


def _access_line(request: web.Request, status: int, seconds: float) -> None:
    level = logging.ERROR if status >= 500 else logging.DEBUG
    log.log(
        level,
        "%s %s %d %.1f ms from %s",
        request.method,
        request.path,
        status,
        seconds * 1000,
        request.remote,
    )
