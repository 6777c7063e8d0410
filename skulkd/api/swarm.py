"""`/v1/swarm…`: the gateway node of this daemon, for its owner."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields

from aiohttp import web
from pydantic_core import to_json

from skulkd.api.errors import ApiError
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.api.streams import send
from skulkd.swarm.errors import Busy, ConfigError, GatewayError, NotEnrolled
from skulkd.swarm.gateway_urls import check_gateway_url, same_gateway
from skulkd.swarm.invocation_token import GENERIC_SCOPE, TokenRefused, verify_token
from skulkd.swarm.js_values import is_plain_id
from skulkd.swarm.node_config import DEFAULT_GATEWAY, GATEWAY_VARIABLE, NodeSettings
from skulkd.swarm.service import SwarmService
from skulkd.wire.base import SnakeModel
from skulkd.wire.swarm import (
    SETUP_OPTIONS,
    EnrolmentReport,
    GenericCancel,
    GenericCancelled,
    GenericEnvelope,
    GenericResult,
    HeartbeatReport,
    LeaveReport,
    SetupPlan,
    SetupPlanReport,
    SwarmEnroll,
    SwarmLeave,
    SwarmSetup,
    SwarmStatus,
)

routes = RouteTable("swarm")
ERRORS = (400, 404, 409, 502)
OWNER_KEY = "MSWARM_API_KEY"
SIGNING_SECRET = "MSWARM_SELF_HOSTED_INVOCATION_SIGNING_SECRET"  # noqa: S105 - its name
SIGNED = ("node_id", "job_id", "request_id")
_PLANNED = set(SetupPlan.model_fields) & {field.name for field in fields(NodeSettings)}


@routes.get("/v1/swarm", scope="read", summary="How the gateway node stands", answer=SwarmStatus)
async def get_swarm(request: web.Request) -> web.StreamResponse:
    status = SwarmStatus.model_validate(_service(request).status())
    return await send(request, status.model_dump_json().encode())


@routes.post(
    "/v1/swarm/setup",
    scope="operate",
    summary="Make this node known to a gateway with an owner's key",
    body=SwarmSetup,
    answer=HeartbeatReport | SetupPlanReport,
    errors=ERRORS,
)
async def post_setup(request: web.Request, body: SwarmSetup) -> web.StreamResponse:
    options = _known(body.options)
    async with _refusals():
        settings = _service(request).planned(options)
        key = body.api_key or _environment_key(request, settings.gateway_base_url)
        if body.dry_run:
            return await _send(request, _plan(settings))
        report = await _service(request).setup(key, options)
        return await _send(request, HeartbeatReport.model_validate({"report": report}))


def _environment_key(request: web.Request, gateway: str) -> str:
    """The daemon's own key, which only the gateway that its environment names may see."""
    environ = services(request).settings.sources.environ
    key = environ.get(OWNER_KEY, "").strip()
    if not key:
        raise ApiError(400, f"apiKey is missing, and so is {OWNER_KEY} in the daemon's environment")
    own = check_gateway_url(environ.get(GATEWAY_VARIABLE, "").strip() or DEFAULT_GATEWAY)
    if not same_gateway(gateway, own):
        raise ApiError(
            400,
            f"apiKey is missing: {OWNER_KEY} of the daemon's environment is sent only to {own},"
            f" not to {gateway}",
        )
    return key


def _plan(settings: NodeSettings) -> SetupPlanReport:
    plan = SetupPlan(
        dry_run=True,
        expose_all_models=settings.exposure.expose_all,
        model_allowlist=list(settings.exposure.allow),
        model_blocklist=list(settings.exposure.block),
        **{key: getattr(settings, key) for key in _PLANNED},
    )
    return SetupPlanReport(report=plan)


@routes.post(
    "/v1/swarm/enroll",
    scope="operate",
    summary="Change a one-time token for a runtime token",
    body=SwarmEnroll,
    answer=EnrolmentReport | SetupPlanReport,
    errors=ERRORS,
)
async def post_enroll(request: web.Request, body: SwarmEnroll) -> web.StreamResponse:
    options = _known(body.options)
    if not is_plain_id(body.node_id):
        raise ApiError(400, f"nodeId {body.node_id[:64]!r} is no plain id of 1 to 256 characters")
    async with _refusals():
        if body.dry_run:
            return await _send(request, _plan(_service(request).planned(options)))
        report = await _service(request).enroll(body.node_id, body.enrollment_token, options)
        return await _send(request, EnrolmentReport.model_validate({"report": report}))


@routes.post(
    "/v1/swarm/run-once",
    scope="operate",
    summary="One heartbeat now",
    answer=HeartbeatReport,
    errors=ERRORS,
)
async def post_run_once(request: web.Request) -> web.StreamResponse:
    async with _refusals():
        report = await _service(request).run_once()
        return await _send(request, HeartbeatReport.model_validate({"report": report}))


@routes.post(
    "/v1/swarm/pause",
    scope="operate",
    summary="Ask the gateway for no more work",
    answer=SwarmStatus,
    errors=ERRORS,
)
async def post_pause(request: web.Request) -> web.StreamResponse:
    return await _pause(request, paused=True)


@routes.post(
    "/v1/swarm/resume",
    scope="operate",
    summary="Ask the gateway for work again",
    answer=SwarmStatus,
    errors=ERRORS,
)
async def post_resume(request: web.Request) -> web.StreamResponse:
    return await _pause(request, paused=False)


@routes.post(
    "/v1/swarm/leave",
    scope="operate",
    summary="Tell the gateway and forget the enrolment",
    body=SwarmLeave,
    answer=LeaveReport,
    errors=ERRORS,
)
async def post_leave(request: web.Request, body: SwarmLeave) -> web.StreamResponse:
    async with _refusals():
        report = await _service(request).leave(force=body.force)
        return await _send(request, LeaveReport.model_validate({"report": report}))


@routes.post(
    "/v1/swarm/self-hosted/node/generic-jobs",
    scope="operate",
    summary="Run one generic job, of a kind that the owner enabled",
    body=GenericEnvelope,
    answer=GenericResult,
    errors=(401, 404, 503),
)
async def post_generic_job(request: web.Request, body: GenericEnvelope) -> web.StreamResponse:
    node = services(request)
    if node.swarm.drain.draining:
        raise ApiError(503, "this node drains and takes no new jobs")
    _check_invocation(request, body)
    async with _refusals():
        result = await node.swarm.service.run_generic(body.model_dump())
    return await send(request, to_json(result, inf_nan_mode="null"))


@routes.post(
    "/v1/swarm/self-hosted/node/generic-jobs/{job_id}/cancel",
    scope="operate",
    summary="Cancel a generic job that runs; its result says so",
    body=GenericCancel,
    answer=GenericCancelled,
    errors=(400, 401, 404),
)
async def post_generic_cancel(request: web.Request, body: GenericCancel) -> web.StreamResponse:
    _check_invocation(request, body)
    if request.match_info["job_id"] != body.job_id:
        raise ApiError(400, "job_id of the body is not the one of the path")
    if not _service(request).cancel_generic(body.job_id):
        raise ApiError(404, f"generic job {body.job_id} does not run here")
    cancelled = GenericCancelled(job_id=body.job_id, status="cancelled")
    return await send(request, cancelled.model_dump_json().encode())


def _check_invocation(request: web.Request, body: GenericEnvelope | GenericCancel) -> None:
    """An owner who has set a signing secret wants every job signed. Raises ApiError 401."""
    secret = services(request).settings.sources.environ.get(SIGNING_SECRET, "").strip()
    if not secret:
        return
    token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
    try:
        claims = verify_token(token, secret, time.time(), GENERIC_SCOPE, SIGNED)
    except TokenRefused as error:
        raise ApiError(401, str(error)) from error
    for name in SIGNED:
        if claims[name] != getattr(body, name):
            raise ApiError(401, f"the token is for another {name}")


async def _pause(request: web.Request, *, paused: bool) -> web.StreamResponse:
    async with _refusals():
        await _service(request).pause(paused=paused)
    return await get_swarm(request)


def _service(request: web.Request) -> SwarmService:
    return services(request).swarm.service


async def _send(request: web.Request, answer: SnakeModel) -> web.StreamResponse:
    return await send(request, answer.model_dump_json(exclude_unset=True).encode())


def _known(options: Mapping[str, str | int | bool]) -> Mapping[str, str | int | bool]:
    for name in options:
        if name not in SETUP_OPTIONS:
            raise ApiError(
                400, f"options.{name[:100]} is not known; {', '.join(SETUP_OPTIONS)} are"
            )
    return options


@asynccontextmanager
async def _refusals() -> AsyncIterator[None]:
    """What went wrong, as the status it stands for."""
    try:
        yield
    except NotEnrolled as error:
        raise ApiError(404, str(error)) from error
    except ConfigError as error:
        raise ApiError(400, str(error)) from error
    except Busy as error:
        raise ApiError(409, str(error)) from error
    except GatewayError as error:
        raise ApiError(502, str(error)) from error
