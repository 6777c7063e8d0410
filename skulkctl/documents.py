"""One JSON or YAML document for commands that otherwise print line by line."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from skulkctl.errors import Refused, UsageMistake
from skulkctl.output import envelope, to_json, to_yaml
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.invocation import Invocation

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
            f"there are more than {MOST_ITEMS} items, too many for one document",
            hints=["one JSON object per line:  -o jsonl", "or ask for fewer of them"],
        )
    document = envelope(kind, {"items": found})
    write(to_yaml(document) if call.format == "yaml" else to_json(document))
