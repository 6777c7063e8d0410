"""The commands of a Markdown page's `console` blocks, with the machine each is typed on. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^(?P<host>[a-z0-9]*)\$ (?P<command>.*?)(?:\s{2,}#.*)?$")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Typed:
    """One command; `host` is empty for the machine of the reader."""

    host: str
    command: str


def console_commands(page: str, heading: str) -> list[Typed]:
    """Every command below a heading, in order. Raises ValueError for a line it cannot read."""
    headings = list(_HEADING.finditer(page))
    for index, found in enumerate(headings):
        if found[1] == heading:
            end = headings[index + 1].start() if index + 1 < len(headings) else len(page)
            return _commands(page[found.end() : end])
    raise ValueError(f"no heading {heading!r}")


def _commands(section: str) -> list[Typed]:
    lines = [line for block in _BLOCK.findall(section) for line in block.splitlines() if line]
    found = []
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            raise ValueError(f"not a command: {line!r}")
        found.append(Typed(match["host"], match["command"].rstrip()))
    return found
