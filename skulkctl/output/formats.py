"""The six output formats: from items to text, and one document for commands that print lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from skulkctl.errors import Refused, UsageMistake
from skulkctl.output.stdout import write
from skulkctl.output.tables import Document, Resource, render

if TYPE_CHECKING:
    from skulkctl.cli import Invocation

API_VERSION = "skulkctl/v1"


def to_json(document: object, indent: int | None = 2) -> str:
    return json.dumps(document, indent=indent, ensure_ascii=False) + "\n"


def to_yaml(document: object) -> str:
    import yaml

    dumped = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return dumped if isinstance(dumped, str) else ""


def envelope(kind: str, content: Document) -> dict[str, object]:
    return {"apiVersion": API_VERSION, "kind": kind, **content}


class Style(NamedTuple):
    """How the user wants data to look: format, columns, order, headers, colour."""

    format: str = "table"
    columns: str | None = None
    """Those the user asked for; they are all shown."""
    usual: str | None = None
    """Those of the command, when it does not show the resource's own."""
    sort: str | None = None
    headers: bool = True
    colour: bool = False
    room: int | None = None
    """The terminal's width; None for a pipe, which gets everything uncut."""

    def rows(self, resource: Resource, items: Sequence[Document]) -> str:
        """A list of one kind in the chosen format."""
        columns = resource.choose(self.columns or self.usual, wide=self.format == "wide")
        items = resource.ordered(items, self.sort)
        if self.format == "json":
            return to_json(envelope(resource.kind, {"items": items}))
        if self.format == "yaml":
            return to_yaml(envelope(resource.kind, {"items": items}))
        if self.format == "jsonl":
            return "".join(to_json(item, indent=None) for item in items)
        if self.format == "name":
            return "".join(f"{resource.name_of(item)}\n" for item in items)
        return render(
            columns,
            items,
            headers=self.headers,
            colour=self.colour,
            room=self.room,
            keep_all=self.columns is not None or self.format == "wide",
            keep_empty=self.columns is not None,
        )

    def single(self, kind: str, content: Document, name: str, screen: Callable[[bool], str]) -> str:
        """One object in the chosen format; `screen(wide)` makes the page for people."""
        if self.format == "json":
            return to_json(envelope(kind, content))
        if self.format == "yaml":
            return to_yaml(envelope(kind, content))
        if self.format == "jsonl":
            return to_json(content, indent=None)
        if self.format == "name":
            return f"{name}\n"
        return screen(self.format == "wide")


MOST_ITEMS = 50_000
"""A document is built in memory and has an end; JSON lines need neither."""


def refuse_follow(call: Invocation, follow: bool) -> None:
    """Raises UsageMistake for a document that would never end."""
    if follow and call.format in ("json", "yaml"):
        raise UsageMistake(
            f"--follow cannot print {call.format}, because the document would never end",
            hints=["one JSON object per line:  --follow -o jsonl"],
        )


def show_document(call: Invocation, kind: str, items: Iterable[object]) -> None:
    """Print a list as one document. Raises Refused when it is too long for one."""
    found = list(islice(items, MOST_ITEMS + 1))
    if len(found) > MOST_ITEMS:
        raise Refused(
            f"there are more than {MOST_ITEMS} items, which is too many for one document",
            hints=[
                "one JSON object per line:  -o jsonl",
                "or reduce the number of items",
            ],
        )
    document = envelope(kind, {"items": found})
    write(to_yaml(document) if call.format == "yaml" else to_json(document))
