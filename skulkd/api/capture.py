"""`POST /v1/diagnostics/…/capture`: everything about a runner that is stuck, before it is touched.

Changes nothing. What it cannot get is a sample with a reason, never a failure. The contract's
JSON, or the same as one `.tar.zst` for whoever asks with `Accept: application/zstd`.
"""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from typing import Any

from aiohttp import hdrs, web

from skulkd.api.diagnostics import diagnose
from skulkd.api.errors import ApiError
from skulkd.api.node_calls import NodeCall
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.log import hide_values
from skulkd.machine.redact import is_secret_name, redact_text
from skulkd.observe.samplers import LOG_LINES, Redact, Subject, longest_s, take_samples
from skulkd.wire.base import format_offset
from skulkd.wire.bundles import MEDIA_TYPE, evidence, file_name, pack_bundle
from skulkd.wire.diagnostics import (
    DiagnosticCaptureRequest,
    DiagnosticCaptureResponse,
    DiagnosticProcessSample,
    RunnerSupervisorDiagnostics,
)
from skulkd.worker.log_files import log_path

routes = RouteTable("diagnostics")
MARGIN_S = 10.0
# Shorter values of variables are words that stand everywhere.
_SECRET_CHARS = 8


@routes.post(
    "/v1/diagnostics/node/capture",
    scope="operate",
    summary="Evidence of this node, or of one of its runners",
    body=DiagnosticCaptureRequest,
    answer=DiagnosticCaptureResponse,
    files=(MEDIA_TYPE,),
    errors=(404,),
)
async def post_node_capture(
    request: web.Request, body: DiagnosticCaptureRequest
) -> web.StreamResponse:
    found = await capture(services(request), body)
    return await _answer(request, found.model_dump_json().encode())


@routes.post(
    "/v1/diagnostics/cluster/{node_id}/capture",
    scope="operate",
    summary="Evidence of the named node, or of one of its runners",
    body=DiagnosticCaptureRequest,
    answer=DiagnosticCaptureResponse,
    files=(MEDIA_TYPE,),
    errors=(404, 502),
)
async def post_cluster_capture(
    request: web.Request, body: DiagnosticCaptureRequest
) -> web.StreamResponse:
    deadline_s = longest_s(body.sample_duration_seconds) + MARGIN_S
    return await _answer(request, await CAPTURE.forward(request, body, deadline_s=deadline_s))


async def _answer(request: web.Request, found: bytes) -> web.StreamResponse:
    """The evidence as it is, or as a file."""
    if MEDIA_TYPE not in request.headers.get(hdrs.ACCEPT, ""):
        return await send(request, found)
    name, packed = await asyncio.to_thread(_bundle, found)
    attached = {"Content-Disposition": f'attachment; filename="{name}"'}
    return await send(request, packed, MEDIA_TYPE, attached)


def _bundle(found: bytes) -> tuple[str, bytes]:
    capture = json.loads(found)
    node_id, at = str(capture["nodeId"]), str(capture["generatedAt"])
    about = {"at": at, "nodeId": node_id, "runnerId": (capture["runner"] or {}).get("runnerId")}
    return file_name(node_id, at.partition(".")[0]), pack_bundle(evidence(capture), about)


async def capture(node: Services, order: DiagnosticCaptureRequest) -> DiagnosticCaptureResponse:
    """The bundle of this node; with an id also the samples of that runner. Raises ApiError."""
    runner = _find(node, order)
    bundle = await diagnose(node)
    samples, warnings = [], []
    if runner is not None and order.include_process_samples:
        subject = _subject(node, runner, order)
        if subject is None:
            warnings.append("no process samples: the runner has no known pid")
        else:
            samples = [*await asyncio.to_thread(take_samples, subject), _daemon_log(node)]
            if not runner.process_alive:
                warnings.append(f"the process {runner.pid} is no longer alive")
    if runner is not None and runner.last_mlx_memory is None:
        warnings.append("the runner has not reported its MLX memory yet")
    found = DiagnosticCaptureResponse(
        generated_at=format_offset(datetime.now(UTC)),
        node_id=node.identity.node_id,
        node_diagnostics=bundle,
        runner=runner,
        flight_recorder=[] if runner is None else runner.flight_recorder,
        mlx_memory=None if runner is None else runner.last_mlx_memory,
        process_samples=samples,
        warnings=warnings,
    )
    return _without_secrets(found, redactor(node))


def _without_secrets(found: DiagnosticCaptureResponse, redact: Redact) -> DiagnosticCaptureResponse:
    """Every text once more: a message of a library may quote what it was given."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, dict):
            return {key: clean(one) for key, one in value.items()}
        return [clean(one) for one in value] if isinstance(value, list) else value

    document = clean(found.model_dump(mode="json"))
    return DiagnosticCaptureResponse.model_validate_json(json.dumps(document))


def _daemon_log(node: Services) -> DiagnosticProcessSample:
    """What the daemon itself said last; it often knows why a runner is stuck."""
    said = "\n".join(f"{one.at} {one.level} {one.text}" for one in node.observe.log.last(LOG_LINES))
    return DiagnosticProcessSample(
        name="daemon-log", command=[], ok=True, duration_seconds=0.0, stdout=said
    )


def _find(node: Services, order: DiagnosticCaptureRequest) -> RunnerSupervisorDiagnostics | None:
    """The runner that both ids mean; None when neither is given."""
    if order.runner_id is None and order.task_id is None:
        return None
    for record in node.worker.diagnostics():
        by_runner = order.runner_id in (None, record.runner_id)
        if by_runner and (order.task_id is None or order.task_id in _tasks(record)):
            return record
    asked = [f"runner {order.runner_id[:200]}"] if order.runner_id else []
    asked += [f"task {order.task_id[:200]}"] if order.task_id else []
    raise ApiError(404, f"Not found on this node: {' with '.join(asked)}")


def _tasks(record: RunnerSupervisorDiagnostics) -> set[str]:
    open_tasks = {task.task_id for task in record.in_progress_tasks}
    known = {*open_tasks, *record.pending_task_ids, *record.cancelled_task_ids}
    return known | ({record.active_task_id} if record.active_task_id else set())


def _subject(
    node: Services, runner: RunnerSupervisorDiagnostics, order: DiagnosticCaptureRequest
) -> Subject | None:
    if runner.pid is None:
        return None
    directory = node.settings.sources.paths.log_file.parent
    return Subject(
        pid=runner.pid,
        duration_s=order.sample_duration_seconds,
        log_file=log_path(directory, runner.runner_id),
        redact=redactor(node),
    )


def redactor(node: Services) -> Redact:
    """Hides what looks like a secret, and the secrets of this node wherever they stand."""
    config = node.settings.started.config
    given = [value for name, value in os.environ.items() if is_secret_name(name)]
    known = [one for one in given if len(one) >= _SECRET_CHARS]
    return hide_values(redact_text, [node.access.policy.secret, config.hf_token or "", *known])


CAPTURE = NodeCall("observe.capture", capture, DiagnosticCaptureRequest, deadline_s=MARGIN_S)
