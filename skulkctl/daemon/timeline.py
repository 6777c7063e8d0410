"""Calls about runners at work: where each stands, and evidence of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skulkctl.daemon import stock_timeline
from skulkctl.daemon.answers import Answer, not_a_node, read_json
from skulkctl.daemon.calls import Call, Steps, ask, call, request, segment
from skulkctl.daemon.nodes import DIAGNOSTICS_PATH
from skulkctl.errors import RouteMissing

if TYPE_CHECKING:
    from skulkd.wire.diagnostics import DiagnosticCaptureRequest
    from skulkd.wire.timeline import Timeline

TIMELINE_PATH = "/v1/cluster/timeline"
CAPTURE_MARGIN_S = 30.0
"""What the samplers of a capture may take besides the sample itself."""


def timeline(first_seen: stock_timeline.FirstSeen | None = None) -> Steps[Timeline]:
    """The runners of all nodes side by side, with their flight recorders.

    `first_seen` is kept by callers that ask again and again, for nodes that do not tell since
    when a task waits.
    """
    from skulkd.wire.timeline import Timeline

    try:
        return (yield from ask(call("GET", TIMELINE_PATH, Timeline)))
    except RouteMissing:
        return (yield from stock_timeline.timeline({} if first_seen is None else first_seen))


def capture(node_id: str, wanted: DiagnosticCaptureRequest) -> Call[dict[str, bytes]]:
    """Evidence of a runner as files by name, every key as its node gave it. Changes nothing."""
    path = f"{DIAGNOSTICS_PATH}/{segment(node_id)}/capture"
    limit_s = wanted.sample_duration_seconds + CAPTURE_MARGIN_S
    return Call(request("POST", path, body=wanted), _read_evidence, limit_s)


def _read_evidence(answer: Answer) -> dict[str, bytes]:
    from skulkd.wire.bundles import evidence

    document = read_json(answer)
    if not isinstance(document, Mapping):
        raise not_a_node(answer, f"its response to {answer.request} is not a capture")
    return evidence(document)
