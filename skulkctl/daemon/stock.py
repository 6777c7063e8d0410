"""Stock Skulk nodes: what they lack or say otherwise, so that no other module has to know.

A stock node gives no codes with its refusals, only its own storage, its events all at once, and no
log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from skulkctl.daemon.answers import Answer, read_json
from skulkctl.daemon.calls import Call, Steps, ask, call, is_stock, request
from skulkctl.daemon.codes import (
    CODES,
    STORE_NOT_CONFIGURED,
    STORE_UNREACHABLE,
    UNKNOWN_MODEL,
)
from skulkctl.daemon.models import models
from skulkctl.daemon.state import read_state
from skulkctl.daemon.streams import StreamCall, Whole
from skulkctl.errors import CliError, NotFound, Refused, RouteMissing, ServerFailed

if TYPE_CHECKING:
    from skulkd.wire.event_stream import EventLine, EventQuery
    from skulkd.wire.storage import ClusterStorage

T = TypeVar("T")

EVENTS_S = 60.0
"""The longest wait for the next piece of a list of events."""

_NO_ROOM = "DoesNotFit"
_LATER = "InfoPending"
_STORE = {"store not configured": STORE_NOT_CONFIGURED, "store unreachable": STORE_UNREACHABLE}
_GIGABYTES = re.compile(r"\d\.\dGB")


def own_storage() -> Steps[ClusterStorage]:
    """The storage of the node that answers, as if it were all of the cluster."""
    from skulkd.wire.storage import (
        ClusterStorage,
        NodeStorage,
        NodeStorageAnswer,
        NodeStorageSummary,
    )

    summary = yield from ask(call("GET", "/store/storage", NodeStorageSummary))
    state = yield from ask(Call(request("GET", "/state"), read_state))
    storage = NodeStorage.model_validate(summary.model_dump())
    name = state.node_name(summary.node_id)
    node = NodeStorageAnswer(node_id=summary.node_id, name=name, ok=True, storage=storage)
    return ClusterStorage(nodes=[node])


def all_events(query: EventQuery) -> StreamCall[EventLine]:
    """Every event of one array, which has neither positions nor times; only kinds are chosen."""
    from skulkd.wire.event_stream import EventLine

    kinds = {kind for kind in query.kind.split(",") if kind}

    def read(head: Answer, body: bytes) -> Iterator[EventLine]:
        whole = read_json(head._replace(body=body))
        for index, event in enumerate(whole if isinstance(whole, list) else ()):
            kind = next(iter(event), "") if isinstance(event, Mapping) else ""
            if kind and (not kinds or kind in kinds):
                yield EventLine(index=index, at=None, kind=kind, event=event)

    return StreamCall(request("GET", "/events"), lambda head: Whole(partial(read, head)), EVENTS_S)


def with_log(asking: Call[T]) -> Steps[T]:
    """The answer with log lines. Raises RouteMissing for a stock node, which has no such thing."""
    try:
        return (yield from ask(asking))
    except RouteMissing as error:
        raise RouteMissing(
            "this server cannot show its log",
            "a stock node logs only to its own stderr",
            details=error.details,
        ) from error


def store_with_codes(asking: Call[T]) -> Steps[T]:
    """The answer about the shared store; a stock node says in words that it cannot be used."""
    try:
        return (yield from ask(asking))
    except ServerFailed as error:
        text = " ".join(error.why).casefold()
        code = next((code for phrase, code in _STORE.items() if phrase in text), None)
        if error.code is not None or code is None:
            raise
        raise _coded(error, code, error.why) from error


def refusals_with_codes(placing: Call[T], model_id: str) -> Steps[T]:
    """The answer about a placement; a refusal of a stock node gets the code ours would have."""
    try:
        return (yield from ask(placing))
    except (NotFound, Refused, ServerFailed) as error:
        is_plain = error.code is None and type(error) is not RouteMissing
        if not is_plain or not (yield from is_stock()):
            raise
        raise (yield from _with_code(error, placing, model_id)) from error


def _with_code(error: CliError, placing: Call[T], model_id: str) -> Steps[CliError]:
    reads = not placing.request.changes
    if isinstance(error, NotFound) and reads:
        # Without such an endpoint its name is taken for the id of an instance.
        return RouteMissing(error.what, details=error.details)
    if any(_GIGABYTES.search(line) for line in error.why):
        return _coded(error, _NO_ROOM, error.why)
    if error.status == 503:
        return _coded(error, _LATER, error.why)
    if error.status == 400 and not reads:
        return error
    known = yield from ask(models())
    if model_id not in [model.id for model in known.data] and (known.data or not reads):
        # A node that does not find a model fails with 500 and no reason.
        return _coded(error, UNKNOWN_MODEL, error.why if error.status != 500 else ())
    return error


def _coded(error: CliError, code: str, why: tuple[str, ...]) -> CliError:
    coded = CODES[code](error.what, *why, hints=error.hints, details=error.details)
    coded.code = code
    return coded
