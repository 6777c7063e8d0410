"""`skulkctl events`: what happened in the cluster, as it was ordered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.errors import UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, verb
from skulkctl.stdout import write_now

if TYPE_CHECKING:
    from skulkctl.views.read import Document

app = new_app()

EXAMPLES = """
  skulkctl events                                      all that the node still has
  skulkctl events --follow
  skulkctl events --since 10m --kind TaskFailed,InstanceDeleted
  skulkctl events -o jsonl | jq -r .kind | sort | uniq -c
"""

_SILENCE_S = 24 * 3600.0
_WIDE = 120
"""Narrower terminals show the time without the day."""


@verb(app, "events", REACH, FORMAT, examples=EXAMPLES)
def events(
    call: Invocation,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens from now on.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="An age as 10m, or a time as 2026-05-04T14:00Z."
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="A,B", help="Only events of these kinds.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="End after so many.")
    ] = None,
) -> int:
    """Print the events of this session: position, time, kind and what they say.

    With -o json or yaml one document is printed at the end; with -o jsonl a line per event, which
    also goes with --follow. A node whose event log is in counting-only mode, for lack of disk
    space, still shows what it has in memory.
    """
    from skulkctl.documents import refuse_follow, show_document

    refuse_follow(call, follow)
    query = {"follow": "true"} if follow else {}
    if since is not None:
        query["since"] = str(_moment(since, datetime.now(UTC)))
    if kind is not None:
        query["kind"] = ",".join(_kinds(kind))
    if limit is not None:
        query["limit"] = str(limit)
    if call.format in ("json", "yaml"):
        show_document(call, "EventList", _stream(call, query, follow))
        return ExitCode.DONE
    for event in _stream(call, query, follow):
        if not write_now(_line(call, event)):
            break
    return ExitCode.DONE


def _kinds(typed: str) -> list[str]:
    """The kinds that were typed, as they are spelled. Raises UsageMistake naming all kinds."""
    from difflib import get_close_matches

    from skulkd.wire.events import EVENT_KINDS

    known = {name.casefold(): name for name in EVENT_KINDS}
    names = [name.strip() for name in typed.split(",") if name.strip()]
    for name in names or [typed]:
        if name.casefold() not in known:
            near = get_close_matches(name.casefold(), known, n=1)
            raise UsageMistake(
                f"--kind {name or repr(name)}: there is no such kind of event",
                f"kinds: {', '.join(EVENT_KINDS)}",
                hints=[f"did you mean {known[near[0]]}?"] if near else [],
            )
    return [known[name.casefold()] for name in names]


def _moment(typed: str, now: datetime) -> float:
    from skulkctl.units import parse_duration, parse_time

    moment = parse_time(typed) if "-" in typed else None
    if moment is not None:
        return moment.timestamp()
    try:
        return (now - timedelta(seconds=parse_duration(typed))).timestamp()
    except ValueError:
        why = "write an age as 10m, or a time as 2026-05-04T14:00Z"
        raise UsageMistake(f"--since: {typed!r} is no time", why) from None


def _stream(call: Invocation, query: dict[str, str], follow: bool) -> Iterator[Document]:
    from urllib.parse import urlencode

    from skulkctl.daemon.answers import error_of, is_missing_route
    from skulkctl.views.read import mapping

    path = f"/v1/events?{urlencode(query)}"
    answer = call.client.open("GET", path, None, _SILENCE_S if follow else call.timeout_s(60.0))
    try:
        if is_missing_route(answer.head):
            yield from _stock(call, query)
            return
        if not answer.head.ok:
            raise error_of(answer.whole())
        rest = b""
        for piece in answer.pieces():
            *lines, rest = (rest + piece).split(b"\n")
            yield from (mapping(json.loads(line)) for line in lines if line)
    finally:
        answer.close()


def _stock(call: Invocation, query: dict[str, str]) -> Iterator[Document]:
    """A stock node gives one array, without positions and times."""
    from skulkctl.views.read import tagged

    kinds = {one for one in query.get("kind", "").split(",") if one}
    if "since" in query or "follow" in query:
        call.talk.warning("this server cannot do --since and --follow; all it has is shown")
    whole = call.client.get("/events")
    for index, event in enumerate(whole if isinstance(whole, list) else []):
        kind, _ = tagged(event)
        if not kinds or kind in kinds:
            yield {"index": index, "at": None, "kind": kind, "event": event}


def _line(call: Invocation, event: Document) -> str:
    from skulkctl.layout import clip, hanging
    from skulkctl.output import to_json
    from skulkctl.screen import printable, width
    from skulkctl.views.read import mapping, text

    if call.format == "jsonl":
        return to_json(event, indent=None)
    kind = text(event, "kind") or "?"
    if call.format == "name":
        return f"{kind}\n"
    at = (text(event, "at") or "-")[:23]
    told = printable(_told(kind, mapping(event, "event", kind)))
    room = call.style.room
    if room is not None and room < _WIDE:
        at = at[11:] or at
    head = printable(f"{event.get('index'):>7}  {at}  {kind:<22} ")
    if room is None:
        return f"{head}{told}".rstrip() + "\n"
    if call.format == "wide":
        return "".join(f"{line.rstrip()}\n" for line in hanging(head, told, room))
    return f"{head}{clip(told, max(1, room - width(head)))}".rstrip() + "\n"


def _told(kind: str, body: Document) -> str:
    """What an event says: a sentence for moves, else its fields as they are."""
    if kind in ("InstanceMoved", "InstanceMoveRefused"):
        return _move_told(body)
    return " ".join(f"{key}={_value(value)}" for key, value in body.items() if key != "event_id")


def _move_told(body: Document) -> str:
    from skulkctl.placement.instances import short_instance
    from skulkctl.views.read import mapping, sequence, text

    names = mapping(body, "names")

    def nodes(key: str) -> str:
        return ",".join(str(names.get(str(node), node)) for node in sequence(body, key))

    if text(body, "why_not"):
        where = f"{nodes('nodes')} not moved: {text(body, 'refusal')}: {text(body, 'why_not')};"
    else:
        where = f"{nodes('from_nodes')} -> {nodes('to_nodes')}"
    most = body.get("most")
    count = f"{body.get('attempt')} of {most}" if most is not None else f"{body.get('attempt')}"
    name = f"{short_instance(body.get('instance_id'))} {text(body, 'model_id')}"
    return f"{name} {where} (attempt {count}) {text(body, 'reason')}"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
