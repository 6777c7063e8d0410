"""YAML as hostile as it gets: a clear refusal with a line, and never another exception."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skulkd.settings.document import MAX_BYTES, Document, parse_document
from skulkd.settings.problems import SettingsError


def _parse(text: bytes | str) -> Document:
    return parse_document(text, "skulk.yaml")


def _refusal(text: bytes | str) -> str:
    with pytest.raises(SettingsError) as caught:
        _parse(text)
    return str(caught.value)


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
TOWER = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 60))

REFUSED = [
    (b"api:\n  listen: \xff\n", "skulk.yaml:2: not UTF-8: byte 0xFF at offset 15"),
    (b"\xef\xbb\xbfa: \xc3(", "skulk.yaml:1: not UTF-8: byte 0xC3 at offset 6"),
    ("a: 1".encode("utf-16"), "skulk.yaml:1: not UTF-8: byte 0xFF at offset 0"),
    ("api:\n\tlisten: x\n", "skulk.yaml:2: tab used for indentation; use spaces"),
    ("api:\n  a: 1\n \tb: 2\n", "skulk.yaml:3: tab used for indentation; use spaces"),
    ("api: 1\n\tlisten: x\n", "skulk.yaml:2: tab used for indentation; use spaces"),
    ("a: 1\n\t# remark\n", "skulk.yaml:2: tab used for indentation; use spaces"),
    ("a: \x07\n", "skulk.yaml:1: control character U+0007 is not allowed"),
    ("a: 1\nb: \0\n", "skulk.yaml:2: control character U+0000 is not allowed"),
    ("#" * (MAX_BYTES + 1), "skulk.yaml: too big: the limit is 1 MiB"),
    ("é" * (MAX_BYTES // 2 + 1), "skulk.yaml: too big: the limit is 1 MiB"),
    ("a: " + "[" * 60 + "]" * 60, "skulk.yaml:1: nested too deep: the limit is 50 levels"),
    ("a: " + "{b: " * 60 + "1" + "}" * 60, "skulk.yaml:1: nested too deep: the limit is 50 levels"),
    (TOWER, "skulk.yaml:49: nested too deep: the limit is 50 levels"),
    (LAUGHS, "skulk.yaml:4: too many values: the limit is 10000"),
    ("a: [" + "1," * 10_001 + "]", "skulk.yaml:1: too many values: the limit is 10000"),
    ("a: &a [*a]", "skulk.yaml:1: alias *a contains itself"),
    ("a: &a {b: *a}", "skulk.yaml:1: alias *a contains itself"),
    ("a: *b", "skulk.yaml:1: alias *b has no anchor before it"),
    ("a: 1\nb: 2\na: 3\n", "skulk.yaml:3: a: key is given twice, first on line 1"),
    ("a:\n  b: 1\n  'b': 2\n", "skulk.yaml:3: b: key is given twice, first on line 2"),
    ("- a\n", "skulk.yaml:1: must be a mapping of keys to values"),
    ("\nwords\n", "skulk.yaml:2: must be a mapping of keys to values"),
    ("42", "skulk.yaml:1: must be a mapping of keys to values"),
    ("a: 1\n---\nb: 2\n", "skulk.yaml:2: more than one document in the file"),
    ("a: !!python/object/apply:os.system [ls]", "skulk.yaml:1: tag"),
    ("a: !secret x", 'skulk.yaml:1: tag "!secret" is not allowed'),
    ("a: !!binary aGk=", "skulk.yaml:1: tag"),
    ("!!set {a, b}", "skulk.yaml:1: tag"),
    ("on: 1\n", "skulk.yaml:1: on: this key is not text in YAML; put it in quotes"),
    ("2024: 1\n", "skulk.yaml:1: 2024: this key is not text in YAML; put it in quotes"),
    ("? [a]\n: 1\n", "skulk.yaml:1: a key must be a single word, not a list or mapping"),
    ("a: 0b_\n", 'skulk.yaml:1: "0b_" is not a valid int; put it in quotes if it is text'),
    ("a: 2024-13-45\n", 'skulk.yaml:1: "2024-13-45" is not a valid timestamp; put it in quotes'),
    ("a: !!int x", 'skulk.yaml:1: "x" is not a valid int'),
    ("a: !!bool x", 'skulk.yaml:1: "x" is not a valid bool'),
    ("a: " + "9" * 5000, "is not a valid int"),
    ("a: 1" + ":1" * 300_000, "is not a valid int"),
    ("a: 'x\nb: 1\n", "that began on line 1"),
    ("a: [1, 2\nb: 3\n", "skulk.yaml:2: not valid YAML"),
    ("a: b: c\n", "skulk.yaml:1: not valid YAML: mapping values are not allowed here"),
    ('a: "\\UFFFFFFFF"\n', "not valid YAML: impossible escape"),
    ("<<: 1\n", "skulk.yaml:1: << must be given a mapping or a list of mappings"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=lambda value: repr(value)[:30])
def test_unusable_text_is_refused_with_its_place(text: bytes | str, message: str) -> None:
    assert message in _refusal(text)


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# only a remark\n", "---\n", "null\n", "~", "\ufeff# bom\n", "{}"]
)
def test_text_without_settings_is_empty(text: str) -> None:
    assert _parse(text).data == {}


def test_every_duplicate_is_reported_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        _parse("a: 1\na: 2\nb: {c: 1, c: 2}\nyes: 1\n")
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4]


def test_lines_are_known_for_keys_items_and_aliases() -> None:
    text = "a:\n  b: 1\n  c:\n    - x\n    - 'y'\nbase: &base\n  d: 0x10\ncopy: *base\n"
    document = _parse(text)
    lines = {
        path: document.place(path)
        for path in [("a",), ("a", "b"), ("a", "c", 1), ("copy",), ("copy", "d"), ("a", "zz")]
    }
    assert {path: place and (place.line, place.text) for path, place in lines.items()} == {
        ("a",): (1, None),
        ("a", "b"): (2, "1"),
        ("a", "c", 1): (5, '"y"'),
        ("copy",): (8, None),
        ("copy", "d"): (7, "0x10"),
        ("a", "zz"): None,
    }
    assert document.nearest_line(("a", "zz")) == 1
    assert document.data["copy"] == {"d": 16}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_as_editors_do(end: str) -> None:
    text = end.join(["a: 'x\u2028y'", "# remark", "b: 2", "c: 3"])
    place = _parse(text).place(("c",))
    assert place is not None
    assert place.line == 4


def test_copies_of_an_alias_are_independent() -> None:
    data = _parse("a: &a {b: [1]}\nc: *a\n").data
    data["c"]["b"].append(2)
    assert data["a"] == {"b": [1]}


@pytest.mark.parametrize(
    "text",
    [
        "base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n",
        "p: &p {x: 1}\nq: &q {x: 2, z: 4}\nuse:\n  y: 3\n  <<: [*p, *q]\n",
        "a: &a yes\nb: *a\nc: <<\nd: !!str 12\ne: [1.5, ~, .inf]\nf: |\n  x\n  #y\n",
        "a: 1_000\nb: 0777\nc: 1:30\nd: '12'\ne: \"a\\tb\"\n",
    ],
)
def test_ordinary_yaml_means_what_the_library_says(text: str) -> None:
    if "<<\n" in text:
        assert _parse(text).data["c"] == "<<"
        text = text.replace("c: <<", "c: x")
    assert _parse(text).data == yaml.safe_load(text)


_yaml_pieces = st.sampled_from(
    [
        *("a", "b", ":", "-", "[", "]", "{", "}", ",", "&x", "*x", "'", '"', "#", "!", "|", ">"),
        *("?", "---", "...", "<<", "\\", "%", "@", "~", "1", ".", "é", "- ", ": "),
        *(" ", "  ", "\n", "\t", "\r", "\x85"),
    ]
)


@given(st.binary(max_size=60) | st.lists(_yaml_pieces, max_size=30).map("".join))
@example("%YAML 9.9\n---\na: 1")
@example("%TAG ! tag:x,%zz:\n--- !a\n")
@example("a: =\n")
@settings(max_examples=400, deadline=None)
def test_any_text_gives_a_mapping_or_a_settings_error(text: bytes | str) -> None:
    try:
        document = _parse(text)
    except SettingsError as error:
        assert error.problems
    else:
        assert isinstance(document.data, dict)
        assert all(isinstance(key, str) for key in document.data)
