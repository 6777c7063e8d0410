"""The commands of a Markdown page's `console` blocks and the outputs shown below them. Pure.

A line that begins with `$ ` or `host$ ` is a command; the lines below it, up to the next command
or the end of the block, are its output. An output is compared word by word, in this notation:

- Numbers, sizes, durations, times and ids may have any value, as long as they are of the same kind.
- `…` within a line stands for any text.
- A line that is only `…` stands for any number of lines.
- Runs of spaces and of bar characters are equal, whatever their length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^(?P<host>[a-z0-9]*)\$ (?P<command>.*?)(?:\s{2,}#.*)?$")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
# In this order: what comes first may contain what comes later.
_VALUES = (
    ("TIME", re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?")),
    ("ID", re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")),
    ("ID", re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{4,}\b|\b[0-9a-f]{8}\b")),
    ("DURATION", re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|[smhd])(?:\d+(?:ms|[smhd]))*\b")),
    ("SIZE", re.compile(r"\b\d+(?:\.\d+)? ?(?:[KMGT]i)?B\b")),
    ("NUMBER", re.compile(r"(?<![A-Za-z0-9])\d+(?:\.\d+)*\b")),
    ("▮", re.compile(r"▮(?:[▮ ]*▮)?")),
    ("BAR", re.compile(r"[█▉▊▋▌▍▎▏░]{4,}")),
)


@dataclass(frozen=True)
class Typed:
    """One command; `host` is empty for the machine of the reader."""

    host: str
    command: str
    output: tuple[str, ...] = ()


def console_commands(page: str, heading: str) -> list[Typed]:
    """Every command below a heading, in order. Raises ValueError for a line it cannot read."""
    headings = list(_HEADING.finditer(page))
    for index, found in enumerate(headings):
        if found[1] == heading:
            end = headings[index + 1].start() if index + 1 < len(headings) else len(page)
            return list(_commands(page[found.end() : end]))
    raise ValueError(f"no heading {heading!r}")


def examples(page: str) -> list[Typed]:
    """The commands of a page that are shown with their output."""
    return [typed for typed in _commands(page) if typed.output]


def _commands(text: str) -> Iterator[Typed]:
    for block in _BLOCK.findall(text):
        typed: Typed | None = None
        for line in filter(None, block.replace("\\\n", "").splitlines()):
            match = _LINE.match(line)
            if match is not None:
                if typed is not None:
                    yield typed
                typed = Typed(match["host"], match["command"].rstrip())
            elif typed is None:
                raise ValueError(f"not a command: {line!r}")
            else:
                typed = Typed(typed.host, typed.command, (*typed.output, line))
        if typed is not None:
            yield typed


def normalised(line: str) -> str:
    """The line with kinds in place of values that vary."""
    for kind, pattern in _VALUES:
        line = pattern.sub(kind, line)
    return " ".join(line.split())


def first_difference(shown: tuple[str, ...], printed: list[str]) -> str:
    """The first line of an example that the output does not have in its place; empty if none."""
    lines = [normalised(line) for line in printed if line.strip()]
    at, skipping = 0, False
    for line in shown:
        if line.strip() == "…":
            skipping = True
            continue
        pattern = re.compile(".*".join(map(re.escape, normalised(line).split("…"))))
        ahead = range(at, len(lines) if skipping else min(at + 1, len(lines)))
        found = next((index for index in ahead if pattern.fullmatch(lines[index])), None)
        if found is None:
            return line
        at, skipping = found + 1, False
    return "" if skipping or at == len(lines) else f"(not shown) {lines[at]}"
