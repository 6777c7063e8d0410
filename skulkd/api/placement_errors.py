"""Refused placements as HTTP answers: one status for each reason, the arithmetic, the hints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skulkd.api.errors import ApiError
from skulkd.cluster.commands import CLUSTER_DOWN
from skulkd.cluster.commits import STORAGE_FAILED, STORAGE_FULL, storage_kind
from skulkd.placement.nearest import Alternative
from skulkd.placement.refusals import Refusal

RETRY_AFTER_S = 5
_STATUS = {
    "UnknownInstance": 404,
    "Taken": 409,
    STORAGE_FULL: 507,
    STORAGE_FAILED: 503,
    CLUSTER_DOWN: 503,
}
_NOTHING_NEAR = {
    "DoesNotFit": "see what is placed and how large models are: skulkctl instances; skulkctl models"
}


def placement_error(
    refusal: Refusal, nearest: Sequence[Alternative] = (), waited_s: float | None = None
) -> ApiError:
    """400 with the reason; 503 when the answer may be another in a moment."""
    told = refusal_object(refusal, nearest)
    if refusal.pending:
        waited = "" if waited_s is None else f" (waited {waited_s:g}s)"
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        return ApiError(503, f"{refusal}{waited}", headers=headers, refusal=told)
    status = _STATUS.get(refusal.kind, 400)
    text = str(refusal) if status == 404 else refusal_text(refusal, nearest)
    return ApiError(status, text, refusal=told)


def storage_error(error: OSError, what: str) -> ApiError:
    """507 when the disk is full, else 503: `what` could not be written, so nothing was changed."""
    kind = storage_kind(error)
    text = f"{what} cannot be written, nothing was changed: {error}"
    hint = "free disk space on this node" if kind == STORAGE_FULL else "fix the disk of this node"
    return ApiError(_STATUS[kind], text, refusal={"kind": kind, "hints": [hint]})


def refusal_text(refusal: Refusal, nearest: Sequence[Alternative] = ()) -> str:
    """The sentence, then a line for each thing that can be done."""
    return "\n".join([str(refusal), *(f"hint: {hint}" for hint in _hints(refusal, nearest))])


def refusal_object(refusal: Refusal, nearest: Sequence[Alternative] = ()) -> dict[str, Any]:
    """The same for programs."""
    return {
        "kind": refusal.kind,
        "hints": _hints(refusal, nearest),
        "nearest": [{"kind": found.kind, "text": found.text} for found in nearest],
        **refusal.data,
    }


def _hints(refusal: Refusal, nearest: Sequence[Alternative]) -> list[str]:
    found = [*(alternative.text for alternative in nearest), *refusal.hints]
    if not found and refusal.kind in _NOTHING_NEAR:
        return [_NOTHING_NEAR[refusal.kind]]
    return list(dict.fromkeys(found))
