"""A change to a settings file touches its own lines; every other byte stays."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.settings.document import parse_document
from skulkd.settings.edit import changed_sections
from skulkd.settings.writer import rewrite

Path = tuple[str | int, ...]
REMOVE = object()


def _changed(raw: Any, path: Path, value: object) -> Any:
    """The same data with one value set, appended to its list, or removed."""
    if not path:
        return value
    new = raw.copy()
    if len(path) == 1 and value is REMOVE:
        del new[path[0]]
    elif isinstance(new, list) and path[0] == len(new):
        new.append(value)
    else:
        old = new.get(path[0], {}) if isinstance(new, dict) else new[path[0]]
        new[path[0]] = _changed(old, path[1:], value)
    return new


def _rewritten(text: str, path: Path, value: object) -> str:
    document = parse_document(text, "f")
    raw = _changed(document.data, path, value)
    new = rewrite(document, raw)
    assert changed_sections(parse_document(new, "f").data, raw) == frozenset()
    return new


TABLE: dict[str, tuple[str, Path, object, str]] = {
    "value with a comment": (
        "a:  # top\n  # about b\n  b:   1   # one\n\n  c: 2\n# end\n",
        ("a", "b"),
        20,
        "a:  # top\n  # about b\n  b:   20   # one\n\n  c: 2\n# end\n",
    ),
    "single quotes": ("a: 'x'  # c\n", ("a",), "it's", "a: 'it''s'  # c\n"),
    "double quotes": ('a: "x"\nb: "y"\n', ("a",), "z", 'a: "z"\nb: "y"\n'),
    "quotes that are not needed": ("a: 'x'\n", ("a",), 5, "a: 5\n"),
    "text that needs quotes": ("a: x\n", ("a",), "yes", "a: 'yes'\n"),
    "text with a comma": ("a: x\n", ("a",), "y, z", "a: y, z\n"),
    "text of two lines": ("a:\n  b: x # c\n", ("a", "b"), "y\nz", 'a:\n  b: "y\\nz" # c\n'),
    "text block": ("a: |\n  x\n  y\n\nb: 1\n", ("a",), "z", "a: z\n\nb: 1\n"),
    "long line": (
        "a: " + "word " * 40 + "# c\nb: 1\n",
        ("b",),
        2,
        "a: " + "word " * 40 + "# c\nb: 2\n",
    ),
    "value on the next line": ("a:\n  # c\n  x\n", ("a",), "y", "a:\n  # c\n  y\n"),
    "null without text": ("a:  # c\nb: 1\n", ("a",), 5, "a: 5  # c\nb: 1\n"),
    "null spelled": ("a: ~ # c\nb: null\n", ("a",), 5, "a: 5 # c\nb: null\n"),
    "value to null": (
        "a: {b: 1}\nc:\n  d: 5 # c\n",
        ("c", "d"),
        None,
        "a: {b: 1}\nc:\n  d: null # c\n",
    ),
    "value to section": (
        "a: 1\nb: 2 # c\n",
        ("a",),
        {"x": {"y": 1}},
        "a:\n  x:\n    y: 1\nb: 2 # c\n",
    ),
    "section to value": ("a:\n  b: 1\n  c: 2\n# d\nd: 1\n", ("a",), 5, "a: 5\n# d\nd: 1\n"),
    "new key": (
        "a:\n    b: 1\n\n    # c: 2\n# d\nd: 1\n",
        ("a", "x"),
        "y",
        "a:\n    b: 1\n    x: y\n\n    # c: 2\n# d\nd: 1\n",
    ),
    "new section behind comments of the last": (
        "a:\n  b: 1\n\n  # c: 2\n\n# end\n",
        ("x", "y"),
        1,
        "a:\n  b: 1\n\n  # c: 2\nx:\n  y: 1\n\n# end\n",
    ),
    "removed key": (
        "a:\n  # about b\n  b: 1  # one\n  # about c\n  c: 2\n",
        ("a", "b"),
        REMOVE,
        "a:\n  # about b\n  # about c\n  c: 2\n",
    ),
    "removed section": (
        "# a\na:\n  b: 1\n\n  # c: 2\n\n# d\nd: 1\n",
        ("a",),
        REMOVE,
        "# a\n\n# d\nd: 1\n",
    ),
    "last key removed": ("a:  # c\n  b: 1\nd: 1\n", ("a", "b"), REMOVE, "a: {}\nd: 1\n"),
    "first key of an empty section": ("a: {}\nd: 1\n", ("a", "b"), 1, "a:\n  b: 1\nd: 1\n"),
    "everything removed": ("# top\na: 1\n# end\n", (), {}, "# top\n# end\n"),
    "list grows": (
        "a:\n  # all\n  - x  # one\n  - y  # two\n  # last\nb: 1\n",
        ("a", 2),
        "z",
        "a:\n  # all\n  - x  # one\n  - y  # two\n  - z\n  # last\nb: 1\n",
    ),
    "list grows in front": ("a:\n- x # c\n", ("a",), ["w", "x"], "a:\n- w\n- x # c\n"),
    "list shrinks": (
        "a:\n-   x  # one\n# two\n-   y  # two\n-   z  # three\nb: 1\n",
        ("a", 1),
        REMOVE,
        "a:\n-   x  # one\n# two\n-   z  # three\nb: 1\n",
    ),
    "list item": (
        "a:\n  - x # 1\n  - y # 2\n  - z # 3\n",
        ("a", 1),
        "n",
        "a:\n  - x # 1\n  - n\n  - z # 3\n",
    ),
    "list emptied": ("a:\n  - x\nb: 1\n", ("a",), [], "a: []\nb: 1\n"),
    "list filled": ("a: []  # c\nb: 1\n", ("a",), ["x", "y"], "a:\n- x\n- y  # c\nb: 1\n"),
    "list of lists": (
        "a:\n- - x\n  - y\n- - z\nb: 1 # c\n",
        ("a", 1, 0),
        "n",
        "a:\n- - x\n  - y\n- - n\nb: 1 # c\n",
    ),
    "list of mappings": (
        "a:\n  - b: 1 # one\n    c: 2\n  - b: 3 # three\n",
        ("a", 1, "b"),
        4,
        "a:\n  - b: 1 # one\n    c: 2\n  - b: 4\n",
    ),
    "flow mapping": ("a: { b: 1,c: 'x' }  # d\n", ("a", "c"), "y", "a: { b: 1,c: 'y' }  # d\n"),
    "flow mapping in lines": (
        "a: {\n  b: 1,  # one\n  c: x,  # two\n}\n",
        ("a", "c"),
        "y, z",
        "a: {\n  b: 1,  # one\n  c: 'y, z',  # two\n}\n",
    ),
    "flow mapping grows": ("a: {b: 1}  # d\n", ("a", "c"), 2, "a: {b: 1, c: 2}  # d\n"),
    "flow mapping shrinks": ("a: {b: 1, c: 2}  # d\n", ("a", "b"), REMOVE, "a: {c: 2}  # d\n"),
    "flow list": ("a: [x,y]  # d\nb: [1,2]\n", ("a", 2), "z", "a: [x, y, z]  # d\nb: [1,2]\n"),
    "flow file": ("{a: 1, b: {c: 2}} # d\n", ("b", "c"), 3, "{a: 1, b: {c: 3}} # d\n"),
    "flow file grows": ("# top\n{a: 1} # d\n", ("b",), 3, "# top\na: 1\nb: 3 # d\n"),
    "inside an anchor": (
        "a: &x\n  b: 1 # one\n  c: 2\nd: *x\n",
        ("a", "b"),
        5,
        "a: &x\n  b: 5 # one\n  c: 2\nd:\n  b: 1\n  c: 2\n",
    ),
    "alias": ("a: &x [1]\nb: *x  # c\nd: *x\n", ("b",), 2, "a: &x [1]\nb: 2  # c\nd: *x\n"),
    "merged mapping": (
        "a: &x {b: 1} # one\nc:\n  <<: *x\n  d: 2\n# e\ne: 1\n",
        ("c", "d"),
        3,
        "a: &x {b: 1} # one\nc:\n  d: 3\n  b: 1\n# e\ne: 1\n",
    ),
    "tag": ("a: !!str 12  # c\n", ("a",), "13", "a: '13'  # c\n"),
    "quoted key": ('\'a\': 1\n"b":\n  "c d": 2\n', ("b", "c d"), 3, '\'a\': 1\n"b":\n  "c d": 3\n'),
    "explicit key": ("? a\n: 1 # c\nb: 2\n", ("a",), 3, "? a\n: 3 # c\nb: 2\n"),
    "dos line ends": (
        "a: 1  # c\r\nb:\r\n  c: 2\r\n",
        ("b", "d"),
        {"e": [1]},
        "a: 1  # c\r\nb:\r\n  c: 2\r\n  d:\r\n    e:\r\n    - 1\r\n",
    ),
    "old mac line ends": ("a: 1 # c\rb: 2\r", ("a",), REMOVE, "b: 2\r"),
    "no line end": ("a: 1\nb: 2 # c", ("a",), 3, "a: 3\nb: 2 # c"),
    "no line end, value of the last line": ("a: 1\nb: 2", ("b",), 3, "a: 1\nb: 3"),
    "no line end, new key": ("a:\n  b: 2 # c", ("a", "d"), 3, "a:\n  b: 2 # c\n  d: 3\n"),
    "no line end, two levels": (
        "a:\n  b: 2",
        (),
        {"a": {"b": 2, "c": 3}, "d": 4},
        "a:\n  b: 2\n  c: 3\nd: 4\n",
    ),
    "unicode": ("ä: é😀 # ü\nb: 1 # 日本\n", ("ä",), "日本 😀", "ä: 日本 😀 # ü\nb: 1 # 日本\n"),
    "document markers": (
        "# c\n---\n# d\na: 1\nb: 2\n...\n",
        ("a",),
        3,
        "# c\n---\n# d\na: 3\nb: 2\n...\n",
    ),
    "new key before the end marker": (
        "---\na: 1\n...\n# c\n",
        ("b",),
        3,
        "---\na: 1\nb: 3\n...\n# c\n",
    ),
    "version": (
        "%YAML 1.1\n---\na: yes\nb: on\n",
        ("a",),
        False,
        "%YAML 1.1\n---\na: false\nb: on\n",
    ),
    "numbers": (
        "a: 0x1F\nb: 1_000\nc: 0777\nd: 1:30\n",
        ("b",),
        7,
        "a: 0x1F\nb: 7\nc: 0777\nd: 1:30\n",
    ),
    "white space": ("a: 1  \n   \nb: 2 \n\n\n", ("b",), 3, "a: 1  \n   \nb: 3 \n\n\n"),
}


@pytest.mark.parametrize("case", TABLE)
def test_only_what_changed_is_written(case: str) -> None:
    text, path, value, expected = TABLE[case]
    assert _rewritten(text, path, value) == expected


def test_removed_anchor_that_others_use_is_written_out() -> None:
    assert _rewritten("a: &x {b: 1}\nc: *x\n", ("a",), REMOVE) == "c:\n  b: 1\n"


class _Page(NamedTuple):
    """A settings file as lines, and which of them each value has."""

    lines: list[str]
    spans: dict[Path, range]


_scalars = st.sampled_from(
    ["x", "yes", "1.0", "a: b", "# x", "it's", "é😀", "", "y, z", "~", 0, 7, -1.5, True, None]
)
_remarks = st.lists(st.sampled_from(["", "# about", "# a: 1", "#", "  "]), max_size=2)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.dictionaries(st.sampled_from("abcdé"), inner, min_size=1, max_size=3)
        | st.lists(_scalars, min_size=1, max_size=3)
    ),
    max_leaves=6,
)


def _flow(value: object, style: str | None = None) -> str:
    text = yaml.safe_dump(
        [value], default_flow_style=True, allow_unicode=True, width=9999, default_style=style
    )
    return str(text)[1:-2]


def _write(draw: Any, page: _Page, path: Path, value: Any, column: int) -> None:
    """The entries of one collection, in a style that differs from entry to entry."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        remarks = draw(_remarks)
        page.lines.extend(" " * column + line if line.strip() else line for line in remarks)
        first = len(page.lines)
        head = " " * column + (f"{key}:" if isinstance(value, dict) else "-")
        tail = draw(st.sampled_from(["", " # why", "   #: 'x'", " "]))
        gap = draw(st.sampled_from([" ", "   "]))
        if isinstance(part, dict | list) and draw(st.integers(0, 3)):
            page.lines.append(head + tail)
            deeper = draw(st.integers(1, 4)) if isinstance(part, dict) else draw(st.integers(0, 2))
            _write(draw, page, (*path, key), part, column + deeper)
        else:
            style = draw(st.sampled_from([None, "'", '"'])) if isinstance(part, str) else None
            page.lines.append(f"{head}{gap}{_flow(part, style)}{tail}")
        page.spans[(*path, key)] = range(first, len(page.lines))


@st.composite
def _pages(draw: Any) -> tuple[_Page, dict[str, Any]]:
    page = _Page([], {})
    if draw(st.booleans()):
        page.lines.extend(["# top", "---"])
    value = draw(st.dictionaries(st.sampled_from("abcdef"), _values, min_size=1, max_size=4))
    # At the top, null means the same as nothing.
    value = {key: part for key, part in value.items() if part is not None}
    _write(draw, page, (), value, 0)
    page.lines.extend(draw(_remarks))
    return page, value


def _part(raw: Any, path: Path) -> Any:
    for key in path:
        raw = raw[key]
    return raw


@given(
    made=_pages(),
    data=st.data(),
    newline=st.sampled_from(["\n", "\r\n"]),
    is_ended=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_lines_of_other_values_stay_as_they_are(
    made: tuple[_Page, dict[str, Any]], data: Any, newline: str, is_ended: bool
) -> None:
    page, raw = made
    text = newline.join(page.lines) + newline * is_ended
    assert parse_document(text, "f").data == raw
    if not page.spans:
        return
    path = data.draw(st.sampled_from(sorted(page.spans, key=repr)))
    value = data.draw(_scalars.filter(lambda one: one is not None) | st.just(REMOVE))
    new = _rewritten(text, path, value)
    lines, span = page.lines, page.spans[path]
    if value is REMOVE and len(path) > 1 and len(_part(raw, path[:-1])) == 1:
        span = page.spans[path[:-1]]  # the empty collection is written in one line
    assert new.startswith("".join(line + newline for line in lines[: span.start]))
    rest = newline.join(lines[span.stop :]) + newline * is_ended
    assert new.endswith(rest)
    if len(span) == 1 and isinstance(path[-1], str) and value is not REMOVE:
        line = new.split(newline)[span.start]
        assert line.count("#") >= lines[span.start].count("# why")
        assert new.count(newline) == text.count(newline)


@given(made=_pages(), data=st.data(), value=_values.filter(lambda one: one is not None))
@settings(max_examples=60, deadline=None)
def test_new_key_adds_lines_and_changes_none(
    made: tuple[_Page, dict[str, Any]], data: Any, value: Any
) -> None:
    page, raw = made
    blocks = [path for path, span in page.spans.items() if len(span) > 1]
    path = data.draw(st.sampled_from([(), *sorted(blocks, key=repr)]))
    key = len(_part(raw, path)) if isinstance(_part(raw, path), list) else "new"
    text = "".join(f"{line}\n" for line in page.lines)
    old, new = text.split("\n"), _rewritten(text, (*path, key), value).split("\n")
    added = len(new) - len(old)
    assert any(new[:at] + new[at + added :] == old for at in range(len(old)))
