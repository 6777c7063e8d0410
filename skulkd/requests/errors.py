"""Why a generation request gets no answer. Knows no HTTP; the API maps codes to statuses."""

from __future__ import annotations

from typing import Literal

from skulkd.worker.task_stream import INVALID_REQUEST, NODE_STOPPING, TaskEnded

RequestErrorCode = Literal[
    "invalid_request",
    "not_placed",
    "cannot_place",
    "too_large",
    "busy",
    "not_ready",
    "failed",
    "stopping",
]


class RequestError(Exception):
    """`str()` is a sentence for the client; `retry_after_s` is set when a retry may succeed.

    `kind` names the cause for programs, where `code` alone does not.
    """

    def __init__(
        self,
        code: RequestErrorCode,
        message: str,
        *,
        retry_after_s: int | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code
        self.retry_after_s = retry_after_s


def has_failed(ended: TaskEnded) -> bool:
    """Whether the task neither completed nor was cancelled by its client."""
    if ended.status == "Cancelled":
        return ended.error_message is not None
    return ended.status != "Complete"


def raise_if_failed(ended: TaskEnded) -> None:
    """Raises RequestError unless the task completed or was cancelled."""
    if not has_failed(ended):
        return
    message = ended.error_message or "the runner gave no reason"
    if ended.error_type == INVALID_REQUEST:
        raise RequestError("invalid_request", message)
    code: RequestErrorCode = "stopping" if ended.error_type == NODE_STOPPING else "failed"
    raise RequestError(code, message, retry_after_s=1 if ended.retryable else None)
