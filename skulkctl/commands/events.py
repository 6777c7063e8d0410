"""`skulkctl events`: what happened in the cluster, as it was ordered."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, moment, new_app, values, verb
from skulkctl.errors import UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write_now

if TYPE_CHECKING:
    from skulkd.wire.event_stream import EventLine, EventQuery

app = new_app()

EXAMPLES = """
  skulkctl events                                      all events that the node still has
  skulkctl events --follow
  skulkctl events --since 10m --kind TaskFailed,InstanceDeleted
  skulkctl events -o jsonl | jq -r .kind | sort | uniq -c
"""


@verb(app, "events", Reach, Output, examples=EXAMPLES)
def events(
    call: Invocation,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new events.")
    ] = False,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            metavar="TIME",
            parser=moment,
            help="Only events after this time: an age (10m) or a time (2026-05-04T14:00Z).",
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="A,B",
            autocompletion=values.event_kinds,
            help="Only events of these kinds.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Stop after N events.")
    ] = None,
) -> int:
    """Print the events of this session: position, time, kind and fields.

    With -o json or yaml, print one document at the end; with -o jsonl, one line per event, also
    with --follow. A node whose event log is in counting-only mode, for lack of disk space, still
    shows the events that it has in memory.
    """
    from skulkctl.output.formats import refuse_follow, show_document

    refuse_follow(call, follow)
    query = _query(follow, since, kind, limit)
    if (follow or since) and not call.daemon.can_follow_events():
        call.messages.warning(
            "this server does not support --since and --follow; all its events are shown"
        )
    with call.daemon.events(query) as lines:
        if call.format in ("json", "yaml"):
            show_document(call, "EventList", (line.model_dump() for line in lines))
            return ExitCode.DONE
        for line in lines:
            if not write_now(_text(call, line)):
                break
    return ExitCode.DONE


def _query(follow: bool, since: datetime | None, kind: str | None, limit: int | None) -> EventQuery:
    from skulkd.wire.event_stream import EventQuery

    fields: dict[str, object] = {"follow": True} if follow else {}
    if since is not None:
        fields["since"] = since.timestamp()
    if kind is not None:
        fields["kind"] = ",".join(_kinds(kind))
    if limit is not None:
        fields["limit"] = limit
    return EventQuery.model_validate(fields)


def _kinds(typed: str) -> list[str]:
    """The kinds of events, in their own spelling. Raises UsageMistake naming all kinds."""
    from difflib import get_close_matches

    from skulkd.wire.events import EVENT_KINDS

    known = {name.casefold(): name for name in EVENT_KINDS}
    names = [name.strip() for name in typed.split(",") if name.strip()]
    for name in names or [typed]:
        if name.casefold() not in known:
            near = get_close_matches(name.casefold(), known, n=1)
            raise UsageMistake(
                f"--kind {name or repr(name)}: no such kind of event",
                f"kinds: {', '.join(EVENT_KINDS)}",
                hints=[f"did you mean {known[near[0]]}?"] if near else [],
            )
    return [known[name.casefold()] for name in names]


def _text(call: Invocation, line: EventLine) -> str:
    from skulkctl.events.rows import event_text
    from skulkctl.output.formats import to_json

    if call.format == "jsonl":
        return to_json(line.model_dump(), indent=None)
    if call.format == "name":
        return f"{line.kind}\n"
    return event_text(line, call.style.room, wide=call.format == "wide")
