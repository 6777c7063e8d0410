"""The text of a settings file with some values changed and every other byte as it was.

Works on the spans that the reader found. Does not check the result: the caller reads it back.
"""

import re
from collections.abc import Iterator, Mapping
from textwrap import indent
from typing import Any, NamedTuple

import yaml

from skulkd.settings.document import Document, Node
from skulkd.settings.edit import spelled

_NEWLINE = r"(?:\r?\n|\r(?!\n))"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


class _Entry(NamedTuple):
    """A key or a dash, by its offset, and the value behind it."""

    start: int
    node: Node


def patched(document: Document, wanted: Mapping[str, Any]) -> str:
    """The text of the document changed to say `wanted`, as far as its style allows that."""
    text = document.text
    found = re.search(_NEWLINE, text)
    newline = found[0] if found else "\n"
    is_ended = not text or text.endswith(("\n", "\r"))
    body = text if is_ended else text + newline
    # Stable: where a section and the file both get longer, the section's own lines come first.
    edits = sorted(_Patch(body).root(document.root, wanted), key=lambda edit: edit[:2])
    parts, done = [], 0
    for edit in edits:
        parts += [body[done : edit.start], edit.text.replace("\n", newline)]
        done = edit.end
    new = "".join([*parts, body[done:]])
    return new if is_ended or done == len(body) else new.removesuffix(newline)


def dumped(value: object, *, flow: bool = False, quote: str | None = None) -> str:
    """Data as YAML; with `flow`, all in one line."""
    text: str = yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=flow,
        default_style=quote,
        width=1_000_000,
    )
    return text


class _Patch:
    """Finds the edits that a text needs. The text ends with a line end, unless it is empty."""

    def __init__(self, text: str) -> None:
        self._text = text

    def root(self, node: Node, wanted: Mapping[str, Any]) -> Iterator[_Edit]:
        if _can_descend(node, wanted):
            yield from self._mapping(node, wanted)
        elif node.start == node.end:
            yield _Edit(len(self._text), len(self._text), dumped(dict(wanted)))
        else:
            yield _Edit(node.start, self._end(node), dumped(dict(wanted)).rstrip())

    def _mapping(self, node: Node, wanted: Mapping[str, Any]) -> Iterator[_Edit]:
        entries = {key: _Entry(*entry) for key, entry in (node.keys or {}).items()}
        for key, entry in entries.items():
            if key not in wanted:
                yield _Edit(*self._lines(entry), "")
            elif spelled(entry.node.plain()) != spelled(wanted[key]):
                yield from self._value(key, entry, wanted[key], flow=node.flow)
        if added := {key: value for key, value in wanted.items() if key not in entries}:
            last = list(entries.values())[-1]
            end = self._lines(last)[1]
            yield _Edit(end, end, self._indented(added, last.start))

    def _value(self, key: str, entry: _Entry, value: Any, *, flow: bool) -> Iterator[_Edit]:
        node = entry.node
        holds_parts = bool(node.keys or node.items)
        if isinstance(value, dict) and value and _can_descend(node, value):
            yield from self._mapping(node, value)
        elif isinstance(value, list) and value and (entries := self._items(node)):
            yield from self._sequence(entries, value)
        elif flow or (node.flow and node.self_contained and holds_parts):
            yield self._inline(node, value, flow=True)
        elif (node.flow or not holds_parts) and (not value or not isinstance(value, dict | list)):
            yield self._inline(node, value, flow=False)
        else:
            text = self._indented({key: value}, entry.start).strip()
            yield _Edit(entry.start, self._end(node), text)

    def _sequence(self, entries: list[_Entry], wanted: list[Any]) -> Iterator[_Edit]:
        """Items that stay at both ends are not touched, nor are their comments."""
        old = [spelled(entry.node.plain()) for entry in entries]
        new = [spelled(value) for value in wanted]
        first = _shared(old, new)
        kept = _shared(old[first:][::-1], new[first:][::-1])
        last = len(old) - kept
        for entry in entries[first:last]:
            yield _Edit(*self._lines(entry), "")
        if added := wanted[first : len(wanted) - kept]:
            place = self._lines(entries[last - 1])[1] if last else self._lines(entries[0])[0]
            yield _Edit(place, place, self._indented(added, entries[0].start))

    def _items(self, node: Node) -> list[_Entry]:
        """The items of a list that has each one on a line of its own; else nothing."""
        entries = []
        for item in node.items or () if node.self_contained and not node.flow else ():
            before = self._text[self._line_start(item.start) : item.start]
            if not re.fullmatch(" *- *", before):
                return []
            entries.append(_Entry(item.start - len(before.lstrip()), item))
        return entries

    def _inline(self, node: Node, value: object, *, flow: bool) -> _Edit:
        quote = self._text[node.start] if isinstance(value, str) else ""
        if isinstance(value, str) and "\n" in value:
            quote = '"'  # the only ones that keep it in one line
        text = dumped([value], flow=flow, quote=quote if quote in ("'", '"') else None)
        gap = " " if node.start == node.end else ""
        return _Edit(node.start, self._end(node), gap + (text[1:-2] if flow else text[2:-1]))

    def _indented(self, value: object, start: int) -> str:
        return indent(dumped(value), self._text[self._line_start(start) : start])

    def _lines(self, entry: _Entry) -> tuple[int, int]:
        """All lines of an entry, with the comments behind it that are indented deeper."""
        start = self._line_start(entry.start)
        deeper = rf"(?:(?:[ \t]*{_NEWLINE})* {{{entry.start - start + 1},}}#[^\r\n]*{_NEWLINE})*"
        rest = re.compile(rf"[^\r\n]*{_NEWLINE}{deeper}").match(self._text, self._end(entry.node))
        return start, rest.end() if rest else len(self._text)

    def _line_start(self, offset: int) -> int:
        return max(self._text.rfind(end, 0, offset) for end in "\r\n") + 1

    def _end(self, node: Node) -> int:
        # The span of a text block includes the blank lines behind it.
        end = node.end
        while end > node.start and self._text[end - 1].isspace():
            end -= 1
        return end


def _can_descend(node: Node, wanted: Mapping[str, Any]) -> bool:
    """Whether this mapping can be changed key by key."""
    return bool(
        node.keys and node.self_contained and (not node.flow or node.keys.keys() == wanted.keys())
    )


def _shared(one: list[str], other: list[str]) -> int:
    """How many items two lists share at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
