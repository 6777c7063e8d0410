"""`--watch` for a list: the whole list first, then a line for each row that changes.

Nothing on the screen is ever cleared, so the output can be piped and kept. Comparing is pure; the
loop asks again every second and outlives a daemon that does not answer for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from skulkctl.errors import CliError, UsageMistake
from skulkctl.stdout import write
from skulkctl.tables import Column, Resource, plain, render
from skulkctl.units import time_text
from skulkctl.views.read import Document, dig

if TYPE_CHECKING:
    from skulkctl.invocation import Invocation

POLL_S = 1.0
FORMATS = ("table", "wide", "jsonl", "name")

_AT = Column("at", "at", "When it was seen.")
_CHANGE = Column("change", "change", "joined, changed or left.", status=True)
_DIFFERS = Column("differs", "differs", "What is another value now.")

Load = Callable[[], Sequence[Document]]


def changes(
    before: Mapping[str, Document], after: Mapping[str, Document], notable: Sequence[str]
) -> Iterator[tuple[str, Document]]:
    """`joined`, `changed` and `left` rows; only the `notable` paths make a row a changed one."""
    for key, item in after.items():
        if key not in before:
            yield "joined", item
        elif _facts(before[key], notable) != _facts(item, notable):
            yield "changed", item
    for key, item in before.items():
        if key not in after:
            yield "left", item


def key(item: Document) -> str:
    return str(item["id"])


def differences(before: Document, after: Document, notable: Sequence[str]) -> str:
    """`role worker → master`, for every notable path whose value is another one."""
    facts = zip(notable, _facts(before, notable), _facts(after, notable), strict=True)
    return ", ".join(
        f"{path} {plain(old)} → {plain(new)}" for path, old, new in facts if old != new
    )


def _facts(item: Document, notable: Sequence[str]) -> list[object]:
    return [dig(item, *path.split(".")) for path in notable]


def watch_rows(
    call: Invocation,
    resource: Resource,
    load: Load,
    notable: Sequence[str],
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Until interrupted. Raises UsageMistake for a format that has no end to wait for."""
    if call.format not in FORMATS:
        raise UsageMistake(
            f"--watch cannot print {call.format}",
            f"formats: {', '.join(FORMATS)}",
            hints=["one JSON document for each change:  --watch -o jsonl"],
        )
    rows = {key(item): item for item in load()}
    if call.format == "jsonl":
        _tell(call, resource, [("present", item) for item in rows.values()])
    else:
        call.show_rows(resource, list(rows.values()))
    silent = False
    while True:
        pause(POLL_S)
        try:
            now = {key(item): item for item in load()}
        except CliError as error:
            if not silent:
                call.talk.warning(f"no answer: {'; '.join(error.why) or error.what}")
            silent = True
            continue
        if silent:
            call.talk.note("answers again")
            silent = False
        found = [
            (kind, {**item, "differs": differences(rows.get(key(item), {}), item, notable)})
            for kind, item in changes(rows, now, notable)
        ]
        _tell(call, resource, found)
        rows = now


def _tell(call: Invocation, resource: Resource, found: Sequence[tuple[str, Document]]) -> None:
    from skulkctl.output import to_json

    moment = datetime.now(UTC)
    if call.format == "jsonl":
        for kind, item in found:
            told = {name: value for name, value in item.items() if name != "differs"}
            write(to_json({"type": kind, "at": time_text(moment), "object": told}, indent=None))
        return
    at = time_text(moment.replace(microsecond=0))
    for kind, item in found:
        if call.format == "name":
            write(f"{kind} {resource.name_of(item)}\n")
            continue
        columns = resource.choose(call.style.columns, wide=call.format == "wide")
        row = {**item, "at": at, "change": kind}
        # The whole row says who it is; of a row that is known already, only what is new matters.
        shown = [*columns[:2], _DIFFERS] if kind == "changed" else columns
        write(
            render(
                [_AT, _CHANGE, *shown],
                [row],
                headers=False,
                colour=call.style.colour,
                least=(len(at), len("changed")),
                room=call.style.room,
            )
        )
