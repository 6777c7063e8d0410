"""Calls about traces: the switch, the list, one trace, deleting them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon.answers import Answer, raise_for_status
from skulkctl.daemon.calls import Call, Steps, ask, call, request, segment
from skulkctl.errors import RouteMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skulkd.wire.tracing import (
        ClusterDeleteTracesResponse,
        TraceItems,
        TraceResponse,
        TracingStateResponse,
    )

_SWITCH = "/v1/tracing"
_OWN = "/v1/cluster/traces"
_REFERENCE = "/v1/traces/cluster"


def tracing() -> Call[TracingStateResponse]:
    """Whether new requests are traced."""
    from skulkd.wire.tracing import TracingStateResponse

    return call("GET", _SWITCH, TracingStateResponse)


def switch_tracing(*, enabled: bool) -> Call[TracingStateResponse]:
    """Trace new requests in the whole cluster, or stop doing so."""
    from skulkd.wire.tracing import TracingStateResponse, UpdateTracingStateRequest

    wanted = UpdateTracingStateRequest(enabled=enabled)
    return call("PUT", _SWITCH, TracingStateResponse, body=wanted)


def traces() -> Steps[TraceItems]:
    """The traces of all nodes. The reference's list says less: no ranks, no silent nodes."""
    from skulkd.wire.tracing import TraceItems

    try:
        return (yield from ask(call("GET", _OWN, TraceItems)))
    except RouteMissing:
        return (yield from ask(call("GET", _REFERENCE, TraceItems)))


def trace(task_id: str) -> Call[TraceResponse]:
    """Every span of one trace, from whichever nodes have parts of it."""
    from skulkd.wire.tracing import TraceResponse

    return call("GET", f"{_REFERENCE}/{segment(task_id)}", TraceResponse)


def trace_file(task_id: str) -> Call[bytes]:
    """One trace as a file for Perfetto."""
    return Call(request("GET", f"{_REFERENCE}/{segment(task_id)}/raw"), _body)


def delete_traces(task_ids: Sequence[str]) -> Call[ClusterDeleteTracesResponse]:
    """Delete traces on every node."""
    from skulkd.wire.ids import TaskId
    from skulkd.wire.tracing import ClusterDeleteTracesResponse, DeleteTracesRequest

    wanted = DeleteTracesRequest(task_ids=[TaskId(task_id) for task_id in task_ids])
    return call("POST", f"{_OWN}/delete", ClusterDeleteTracesResponse, body=wanted)


def _body(answer: Answer) -> bytes:
    raise_for_status(answer)
    return answer.body
