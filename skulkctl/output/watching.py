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
from skulkctl.output.stdout import write
from skulkctl.output.tables import Column, Resource, plain, render
from skulkctl.output.units import time_text

if TYPE_CHECKING:
    from skulkctl.cli import Invocation

POLL_S = 1.0
FORMATS = ("table", "wide", "jsonl", "name")

_AT = Column("at", "at", "When the change was seen.")
_CHANGE = Column("change", "change", "joined, changed or left.", status=True)
_DIFFERS = Column("differs", "differs", "Which values changed.")

Item = Mapping[str, object]
Fetch = Callable[[], Sequence[Item]]


def changes(
    before: Mapping[str, Item], after: Mapping[str, Item], notable: Sequence[str]
) -> Iterator[tuple[str, Item]]:
    """`joined`, `changed` and `left` rows; only the `notable` fields make a row a changed one."""
    for key, item in after.items():
        if key not in before:
            yield "joined", item
        elif _values(before[key], notable) != _values(item, notable):
            yield "changed", item
    for key, item in before.items():
        if key not in after:
            yield "left", item


def key(item: Item) -> str:
    return str(item["id"])


def differences(before: Item, after: Item, notable: Sequence[str]) -> str:
    """`role worker → master`, for every notable field whose value is another one."""
    values = zip(notable, _values(before, notable), _values(after, notable), strict=True)
    return ", ".join(
        f"{name} {plain(old)} → {plain(new)}" for name, old, new in values if old != new
    )


def _values(item: Item, notable: Sequence[str]) -> list[object]:
    return [item.get(name) for name in notable]


def watch_rows(
    call: Invocation,
    resource: Resource,
    fetch: Fetch,
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
    rows = {key(item): item for item in fetch()}
    if call.format == "jsonl":
        _print(call, resource, [("present", item) for item in rows.values()])
    else:
        call.show_rows(resource, list(rows.values()))
    silent = False
    while True:
        pause(POLL_S)
        try:
            now = {key(item): item for item in fetch()}
        except CliError as error:
            if not silent:
                call.messages.warning(
                    f"the daemon does not respond: {'; '.join(error.why) or error.what}"
                )
            silent = True
            continue
        if silent:
            call.messages.note("the daemon responds again")
            silent = False
        found = [
            (kind, {**item, "differs": differences(rows.get(key(item), {}), item, notable)})
            for kind, item in changes(rows, now, notable)
        ]
        _print(call, resource, found)
        rows = now


def _print(call: Invocation, resource: Resource, found: Sequence[tuple[str, Item]]) -> None:
    from skulkctl.output.formats import to_json

    moment = datetime.now(UTC)
    if call.format == "jsonl":
        for kind, item in found:
            row = {name: value for name, value in item.items() if name != "differs"}
            write(to_json({"type": kind, "at": time_text(moment), "object": row}, indent=None))
        return
    at = time_text(moment.replace(microsecond=0))
    for kind, item in found:
        if call.format == "name":
            write(f"{kind} {resource.name_of(item)}\n")
            continue
        columns = resource.choose(call.style.columns, wide=call.format == "wide")
        row = {**item, "at": at, "change": kind}
        # A row that was printed before needs only its name and what changed.
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
