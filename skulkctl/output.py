"""The six output formats: from items to text. Pure; `stdout.py` brings the text out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skulkctl.errors import UsageMistake
from skulkctl.tables import Resource, render
from skulkctl.views.read import Document

API_VERSION = "skulkctl/v1"
FORMATS = ("table", "wide", "json", "yaml", "name", "jsonl")


def check_format(name: str) -> str:
    """The format's name; raises UsageMistake when there is no such format."""
    if name not in FORMATS:
        raise UsageMistake(
            f"no output format named {name}",
            f"formats: {', '.join(FORMATS)}",
            hints=["skulkctl help output"],
        )
    return name


def to_json(document: object, indent: int | None = 2) -> str:
    return json.dumps(document, indent=indent, ensure_ascii=False) + "\n"


def to_yaml(document: object) -> str:
    import yaml

    dumped = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return dumped if isinstance(dumped, str) else ""


def envelope(kind: str, content: Document) -> dict[str, object]:
    return {"apiVersion": API_VERSION, "kind": kind, **content}


@dataclass(frozen=True)
class Style:
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
