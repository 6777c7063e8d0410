"""A failed generation as its client sees it: a status, or a frame once the answer began. Pure."""

from __future__ import annotations

from skulkd.api.errors import ApiError, phrase
from skulkd.api.sse import data, to_json
from skulkd.worker.task_stream import INVALID_REQUEST, NODE_STOPPING, TaskEnded

_UNNAMED = "the runner gave no reason"


def failure_of_task(ended: TaskEnded) -> ApiError | None:
    """The error that the end of a task stands for; None when it was answered or cancelled.

    A lost runner or node is a 500 that may be retried; 503 is for a node that is stopping.
    """
    if ended.status == "Complete":
        return None
    if ended.status == "Cancelled" and ended.error_message is None:
        return None
    message = ended.error_message or _UNNAMED
    if ended.error_type == INVALID_REQUEST:
        return ApiError(400, message)
    status = 503 if ended.error_type == NODE_STOPPING else 500
    return ApiError(status, message, headers={"Retry-After": "1"} if ended.retryable else {})


def error_frame(error: ApiError) -> str:
    """The one frame that tells a client of a stream that it failed.

    Clients retry on code 500, so that stands for everything that is not their own fault.
    """
    code, kind = error.status, phrase(error.status)
    if error.status == 400:
        kind = "invalid_request_error"
    elif error.status >= 500:
        code, kind = 500, "InternalServerError"
    body = {"message": error.message, "type": kind, "param": None, "code": code}
    return data(to_json({"error": body}))
