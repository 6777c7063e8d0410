"""Exceptions of the rooms below as HTTP errors: the one table from what went wrong to a status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skulkd.api.errors import ApiError
from skulkd.cluster import lost_nodes, token_admin
from skulkd.cluster.commands import CLUSTER_DOWN, NO_MASTER
from skulkd.cluster.commits import STORAGE_FAILED, STORAGE_FULL
from skulkd.peers import PeerRefused
from skulkd.requests.errors import RequestError, RequestErrorCode
from skulkd.store.errors import HubTimeoutError
from skulkd.store.local_models import ModelsUnavailable

_REQUEST_STATUS: Mapping[RequestErrorCode, int] = {
    "invalid_request": 400,
    "not_placed": 404,
    # As a placement that is refused; a client that repeats it at once gets the same answer.
    "cannot_place": 400,
    "too_large": 413,
    "busy": 429,
    "failed": 500,
    "not_ready": 503,
    "stopping": 503,
}


_COMMAND_STATUS: Mapping[str, int] = {
    lost_nodes.NOT_LOST: 409,
    lost_nodes.UNKNOWN: 404,
    token_admin.NAME_TAKEN: 409,
    token_admin.TOO_MANY: 409,
    token_admin.AMBIGUOUS: 409,
    token_admin.UNKNOWN: 404,
    NO_MASTER: 503,
    CLUSTER_DOWN: 503,
    STORAGE_FAILED: 503,
    STORAGE_FULL: 507,
}


def command_error(refused: PeerRefused, refusal: Mapping[str, Any] | None = None) -> ApiError:
    """A command that the master refused, or that reached no master."""
    status = _COMMAND_STATUS.get(refused.kind, 502)
    headers = {"Retry-After": "5"} if status == 503 else {}
    return ApiError(status, str(refused), headers=headers, refusal=refusal)


def hub_timeout(error: HubTimeoutError) -> ApiError:
    """Not a 404: the hub may have the model. The request to it goes on, so a retry may find it."""
    headers = {"Retry-After": "5"}
    return ApiError(504, error.message, headers=headers, refusal={"kind": error.kind})


def as_api_error(error: BaseException) -> ApiError | None:
    """None for an exception that no handler is expected to raise."""
    match error:
        case ApiError():
            return error
        case RequestError():
            after_s = error.retry_after_s
            headers = {} if after_s is None else {"Retry-After": str(after_s)}
            refusal = None if error.kind is None else {"kind": error.kind}
            status = _REQUEST_STATUS[error.code]
            return ApiError(status, str(error), headers=headers, refusal=refusal)
        case HubTimeoutError():
            return hub_timeout(error)
        case ModelsUnavailable():
            return ApiError(503 if error.timed_out else 500, str(error))
    return None
