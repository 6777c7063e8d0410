"""YAML text to plain data that remembers the line of every key.

Reads the parser's events itself, so a hostile file is refused before anything big is built.
Must not know which keys are valid.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from skulkd.settings.problems import Problem, SettingsError, printable, shown

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 50
MAX_NODES = 10_000
MAX_NUMBER_LENGTH = 100

_CORE = "tag:yaml.org,2002:"
_ALLOWED_TAGS = {_CORE + name for name in ("str", "int", "float", "bool", "null", "map", "seq")}
_TEXT_TAG = _CORE + "str"
_OPERATOR_TAGS = {_CORE + "merge", _CORE + "value"}
_LINE_END = re.compile(r"\r\n|\r|\n")

ValuePath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: its line, counted from 1, and its text when it is a single value."""

    line: int
    text: str | None


@dataclass(slots=True)
class Node:
    """One value and its span in the text. A block collection ends with its last value."""

    start: int
    end: int
    value: object = None
    text: str | None = None
    keys: dict[str, tuple[int, "Node"]] | None = None
    """Each key with its offset in the text and its value."""
    items: list["Node"] | None = None
    flow: bool = False
    """Whether it is written in brackets or, as an alias, by name only."""
    self_contained: bool = True
    """Whether all of its parts stand in its span: false for an alias and a merged mapping."""
    size: int = 1
    height: int = 1

    def adopt(self, child: "Node") -> None:
        """Count a part of this collection, which ends no earlier than the part."""
        self.size += child.size
        self.height = max(self.height, child.height + 1)
        self.end = child.end

    def plain(self) -> Any:
        """The value as plain data."""
        if self.keys is not None:
            return {key: node.plain() for key, (_, node) in self.keys.items()}
        if self.items is not None:
            return [node.plain() for node in self.items]
        return self.value


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file. `data` is empty when the file says nothing."""

    text: str
    data: dict[str, Any]
    root: Node = field(repr=False)
    _lines: "_Lines" = field(repr=False)

    def place(self, path: ValuePath) -> Place | None:
        """Where the value at this path stands; None when the file does not have it."""
        node, start = self.root, self.root.start
        for part in path:
            if node.keys is not None and part in node.keys:
                start, node = node.keys[str(part)]
            elif node.items is not None and isinstance(part, int) and part < len(node.items):
                node = node.items[part]
                start = node.start
            else:
                return None
        return Place(self._lines.number(start), node.text)

    def nearest_line(self, path: ValuePath) -> int | None:
        """The line of the value at this path, or of the closest thing around it."""
        for end in range(len(path), 0, -1):
            place = self.place(path[:end])
            if place is not None:
                return place.line
        return None


def parse_document(content: bytes | str, source: str) -> Document:
    """Parse the text of one settings file.

    Raises SettingsError for anything but one plain YAML mapping within the limits. `source` is
    the name that problems carry.
    """
    text = _decode(content, source)
    lines = _Lines(text)
    try:
        builder = _Builder(text, source, lines)
        root = builder.document()
    except yaml.reader.ReaderError as error:
        message = f"control character U+{ord(text[error.position]):04X} is not allowed"
        line = lines.number(error.position)
        raise SettingsError.single(message, source=source, line=line) from None
    except yaml.MarkedYAMLError as error:
        raise SettingsError([_syntax_problem(error, lines, source)]) from None
    except (ValueError, OverflowError):
        # The scanner lets these through for escapes such as "\UFFFFFFFF".
        raise SettingsError.single("not valid YAML: impossible escape", source=source) from None
    if builder.problems:
        raise SettingsError(builder.problems)
    return Document(text, root.plain() or {}, root, lines)


class _Lines:
    """Line numbers as an editor counts them; YAML itself knows two more line ends."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def number(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    def indent(self, offset: int) -> str:
        """The white space that begins the line of this offset."""
        rest = self._text[self._starts[self.number(offset) - 1] :]
        return rest[: len(rest) - len(rest.lstrip(" \t"))]


def _decode(content: bytes | str, source: str) -> str:
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    if len(raw) > MAX_BYTES:
        raise SettingsError.single("too big: the limit is 1 MiB", source=source)
    try:
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f"not UTF-8: byte 0x{raw[error.start]:02X} at offset {error.start}"
        line = raw.count(b"\n", 0, error.start) + 1
        raise SettingsError.single(message, source=source, line=line) from None


def _syntax_problem(error: yaml.MarkedYAMLError, lines: _Lines, source: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Problem(f"not valid YAML: {error.problem}", source=source)
    line = lines.number(mark.index)
    if "\t" in lines.indent(mark.index):
        return Problem("tab used for indentation; use spaces", source=source, line=line)
    message = f"not valid YAML: {error.problem}"
    if error.context and error.context_mark is not None:
        began = lines.number(error.context_mark.index)
        message += f", {error.context}" + (f" that began on line {began}" if began != line else "")
    return Problem(message, source=source, line=line)


class _Builder:
    """Builds nodes from parser events. Counts what aliases would expand to before allowing it."""

    def __init__(self, text: str, source: str, lines: _Lines) -> None:
        # The published types of the loader and its events lack most of what they have.
        self._loader: Any = yaml.SafeLoader(text)
        self._source = source
        self._lines = lines
        self._anchors: dict[str, Node | None] = {}
        self._count = 0
        self.problems: list[Problem] = []

    def document(self) -> Node:
        self._next()  # the stream begins
        if self._loader.check_event(yaml.StreamEndEvent):
            return Node(0, 0)
        self._next()  # the document begins
        event = self._next()
        root = self._node(event, depth=1)
        self._next()  # the document ends
        if not self._loader.check_event(yaml.StreamEndEvent):
            raise self._refused("more than one document in the file", self._next())
        if root.keys is None and (root.items is not None or root.value is not None):
            raise self._refused("must be a mapping of keys to values", event)
        return root

    def _next(self) -> Any:
        return self._loader.get_event()

    def _line(self, event: Any) -> int:
        return self._lines.number(event.start_mark.index)

    def _refused(self, message: str, event: Any) -> SettingsError:
        return SettingsError.single(message, source=self._source, line=self._line(event))

    def _grow(self, nodes: int, depth: int, event: Any) -> None:
        self._count += nodes
        if self._count > MAX_NODES:
            raise self._refused(f"too many values: the limit is {MAX_NODES}", event)
        if depth > MAX_DEPTH:
            raise self._refused(f"nested too deep: the limit is {MAX_DEPTH} levels", event)

    def _node(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth)
        self._grow(1, depth, event)
        if event.tag is not None and event.tag not in _ALLOWED_TAGS:
            raise self._refused(f"tag {shown(event.tag)} is not allowed", event)
        if event.anchor is not None:
            # Known but unfinished: an alias to it from inside would never end.
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.MappingStartEvent):
            node = self._mapping(event, depth)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, depth)
        else:
            node = self._scalar(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any, depth: int) -> Node:
        if event.anchor not in self._anchors:
            raise self._refused(f"alias *{event.anchor} has no anchor before it", event)
        node = self._anchors[event.anchor]
        if node is None:
            raise self._refused(f"alias *{event.anchor} contains itself", event)
        self._grow(node.size, depth + node.height - 1, event)
        start, end = _span(event)
        return replace(node, start=start, end=end, flow=True, self_contained=False)

    def _scalar(self, event: Any) -> Node:
        tag = event.tag or self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag in _OPERATOR_TAGS:
            tag = _TEXT_TAG
        # Base 60 is YAML too, and a long number in it would take minutes to work out.
        unusable = tag != _TEXT_TAG and len(event.value) > MAX_NUMBER_LENGTH
        node = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        try:
            value = None if unusable else self._loader.construct_object(node)
        except (ValueError, KeyError, OverflowError, yaml.constructor.ConstructorError):
            unusable = True
        if unusable:
            kind = tag.rpartition(":")[2]
            message = f"{shown(event.value)} is not a valid {kind}; put it in quotes if it is text"
            raise self._refused(message, event)
        spelled = event.value if event.style is None else f'"{event.value}"'
        return Node(*_span(event), value, printable(spelled) or "null")

    def _sequence(self, event: Any, depth: int) -> Node:
        node = Node(*_span(event), flow=event.flow_style)
        items: list[Node] = []
        while not isinstance(item := self._next(), yaml.SequenceEndEvent):
            child = self._node(item, depth + 1)
            node.adopt(child)
            items.append(child)
        node.items = items
        _close(node, item)
        return node

    def _mapping(self, event: Any, depth: int) -> Node:
        node = Node(*_span(event), flow=event.flow_style)
        keys: dict[str, tuple[int, Node]] = {}
        merged: dict[str, tuple[int, Node]] = {}
        while not isinstance(key_event := self._next(), yaml.MappingEndEvent):
            key = self._node(key_event, depth + 1)
            value = self._node(self._next(), depth + 1)
            node.adopt(key)
            node.adopt(value)
            if _is_merge(key_event):
                node.self_contained = False
                self._merge(merged, value, key_event)
            elif not isinstance(key.value, str) or key.keys is not None or key.items is not None:
                self._odd_key(key, self._line(key_event))
            elif key.value in keys:
                first = self._lines.number(keys[key.value][0])
                message = f"key is given twice, first on line {first}"
                self._problem(message, key.value, self._line(key_event))
            else:
                keys[key.value] = (key_event.start_mark.index, value)
        node.keys = keys | {key: entry for key, entry in merged.items() if key not in keys}
        _close(node, key_event)
        return node

    def _merge(self, merged: dict[str, tuple[int, Node]], value: Node, event: Any) -> None:
        for source in value.items if value.items is not None else [value]:
            if source.keys is None:
                raise self._refused("<< must be given a mapping or a list of mappings", event)
            for key, entry in source.keys.items():
                merged.setdefault(key, entry)

    def _odd_key(self, key: Node, line: int) -> None:
        if key.text is None:
            self._problem("a key must be a single word, not a list or mapping", None, line)
        else:
            # `no:`, `on:` and `2024:` are not text in YAML, though they look like names.
            self._problem("this key is not text in YAML; put it in quotes", key.text, line)

    def _problem(self, message: str, key: str | None, line: int) -> None:
        self.problems.append(Problem(message, key=key, source=self._source, line=line))


def _span(event: Any) -> tuple[int, int]:
    return event.start_mark.index, event.end_mark.index


def _close(node: Node, event: Any) -> None:
    # The end event of a block collection comes after the comments behind it.
    if node.flow:
        node.end = event.end_mark.index


def _is_merge(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]
