"""Errors as Anthropic's clients read them."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.errors import ApiError, answer
from skulkd.log import REQUEST_ID
from skulkd.wire.anthropic import AnthropicError, AnthropicErrorBody

REQUEST_ID_HEADER = "request-id"
# Only types that are in the clients' own list of errors.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(error: ApiError) -> AnthropicError:
    kind = _TYPES.get(error.status, "api_error")
    return AnthropicError(
        error=AnthropicErrorBody(type=kind, message=error.message), request_id=REQUEST_ID.get()
    )


def error_response(error: ApiError) -> web.Response:
    headers = {**error.headers, REQUEST_ID_HEADER: REQUEST_ID.get() or ""}
    return answer(error.status, error_body(error).model_dump_json().encode(), headers=headers)
