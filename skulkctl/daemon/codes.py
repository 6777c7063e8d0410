"""One table: what the daemon's error codes, and the bare statuses of a stock node, stand for.

Each exception of `skulkctl.errors` has one exit code, so this is also code to exit code. A code
that is not here is decided by the status.
"""

from __future__ import annotations

from http import HTTPStatus

from skulkctl.errors import (
    CliError,
    NotFound,
    Refused,
    RouteMissing,
    ServerFailed,
    Unauthorised,
    Unreachable,
)

UNKNOWN_ROUTE = "unknown_url"
"""The server has no such endpoint, as opposed to no such object."""
MODEL_EXISTS = "model_exists"
STORE_NOT_CONFIGURED = "store_not_configured"
STORE_UNREACHABLE = "store_unreachable"
UNKNOWN_MODEL = "unknown_model"
TLS_REQUIRED = "tls_required"
TOKEN_REFUSED = ("token_unknown", "token_revoked", "token_expired", "secret_not_accepted")
"""The server knows tokens, and not, or no longer, the one that was sent."""

_REFUSED = (
    # Of placements, as skulkd/placement/refusals.py has them.
    "TooFewNodes",
    "UnknownNode",
    "AllExcluded",
    "AllDraining",
    "Ineligible",
    "SingleNodeOnly",
    "NoFiles",
    "RequiredMissing",
    "InfoPending",
    "NotServed",
    "TensorUnsupported",
    "NotDivisible",
    "PipelineUnsupported",
    "TooFewLayers",
    "NoRdma",
    "BadInstance",
    "Taken",
    "MovedTooOften",
    "NotOnDemand",
    "InstanceBusy",
    "RoomLater",
    "DoesNotFit",
    # Of commands, as skulkd/cluster has them.
    "no_master",
    "ClusterDown",
    "StorageFull",
    "StorageFailed",
    # Of model files, as skulkd/store/errors.py has them.
    "bad_model_id",
    "unsupported_model",
    "broken_model",
    "bad_card",
    MODEL_EXISTS,
    "no_space",
    "bad_manifest",
    "upload_offset",
    "busy",
    "staging_place",
    "store_error",
    "download_failed",
    "hub_unreachable",
    "hub_timeout",
    "store_fetch_failed",
    "file_access",
    STORE_NOT_CONFIGURED,
    STORE_UNREACHABLE,
    # Of access, as skulkd/api has them.
    "foreign_host",
    "foreign_origin",
    "scope_missing",
    "rate_limited",
    "too_many_requests",
    "token_name_taken",
    "too_many_tokens",
)

CODES: dict[str, type[CliError]] = {
    **dict.fromkeys(_REFUSED, Refused),
    UNKNOWN_ROUTE: RouteMissing,
    "UnknownInstance": NotFound,
    UNKNOWN_MODEL: NotFound,
    "model_not_found": NotFound,
    "response_not_found": NotFound,
    "previous_response_not_found": NotFound,
    TLS_REQUIRED: Unreachable,
    "token_required": Unauthorised,
    **dict.fromkeys(TOKEN_REFUSED, Unauthorised),
}

_STATUSES: dict[int, type[CliError]] = {
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.UNAUTHORIZED: Unauthorised,
}


def exception_for(code: str | None, status: int) -> type[CliError]:
    """What to raise. Without a known code a 4xx is a refusal and the rest a failure."""
    if code in CODES:
        return CODES[code]
    if status in _STATUSES:
        return _STATUSES[status]
    # A code that is new to us says at least that the daemon refused on purpose.
    return Refused if code is not None or 400 <= status < 500 else ServerFailed
