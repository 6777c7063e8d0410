"""Plain tables, their columns and their order; colour decisions."""

from __future__ import annotations

import pytest

from skulkctl.cli.options import Format
from skulkctl.errors import UsageMistake
from skulkctl.output.formats import Style
from skulkctl.output.tables import Column, Resource, render, size
from skulkctl.output.terminal import printable, wants_colour, width

BOOKS = Resource(
    kind="BookList",
    name_path="title",
    columns=(
        Column("title", "title", "Title."),
        Column("size", "file.bytes", "Size.", text=size, right=True),
        Column("shelf", "shelf", "Where it is.", wide=True),
        Column("state", "state", "How it is.", status=True),
    ),
)
ITEMS: list[dict[str, object]] = [
    {"title": "Beta", "file": {"bytes": 2048}, "shelf": "left", "state": "ok"},
    {"title": "alpha", "file": {"bytes": 10}, "shelf": None, "state": "warn"},
    {"title": "Gamma", "file": None, "shelf": "right", "state": ""},
]


def titles(sort: str) -> list[object]:
    return [item["title"] for item in BOOKS.ordered(ITEMS, sort)]


def test_table_has_two_space_gutters_and_dashes_for_what_is_empty() -> None:
    assert Style().rows(BOOKS, ITEMS) == (
        "TITLE    SIZE  STATE\n"
        "Beta   2.0KiB  ok\n"
        "alpha     10B  warn\n"
        "Gamma       -  -\n"
    )  # fmt: skip


def test_wide_adds_columns_and_headers_can_be_left_out() -> None:
    wide = Style(format="wide", headers=False).rows(BOOKS, ITEMS[:1])
    assert wide == "Beta  2.0KiB  left  ok\n"


def test_columns_are_shown_in_the_order_asked_for() -> None:
    assert Style(columns="state,title").rows(BOOKS, ITEMS[:1]) == "STATE  TITLE\nok     Beta\n"


def test_an_unknown_column_is_a_usage_mistake_that_names_the_nearest() -> None:
    with pytest.raises(UsageMistake) as raised:
        Style(columns="title,stat").rows(BOOKS, ITEMS)
    assert raised.value.what == "no column named stat"
    assert raised.value.hints == ("did you mean state?",)


def test_an_unknown_column_is_a_mistake_in_json_too() -> None:
    with pytest.raises(UsageMistake):
        Style(format="json", sort="nonsense").rows(BOOKS, ITEMS)


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("title", ["alpha", "Beta", "Gamma"]),
        ("-title", ["Gamma", "Beta", "alpha"]),
        ("size", ["alpha", "Beta", "Gamma"]),
        ("-size", ["Beta", "alpha", "Gamma"]),
    ],
)
def test_sort_orders_by_value_and_puts_empty_last(sort: str, order: list[str]) -> None:
    assert titles(sort) == order


def test_json_yaml_jsonl_and_name_hold_the_same_items() -> None:
    import json

    import yaml

    texts = {name: Style(format=name).rows(BOOKS, ITEMS) for name in Format}
    document = {"apiVersion": "skulkctl/v1", "kind": "BookList", "items": ITEMS}
    assert json.loads(texts["json"]) == document
    assert yaml.safe_load(texts["yaml"]) == document
    assert [json.loads(line) for line in texts["jsonl"].splitlines()] == ITEMS
    assert texts["name"] == "Beta\nalpha\nGamma\n"


def test_wide_letters_keep_columns_straight() -> None:
    items = [{"title": "狐", "state": "ok"}, {"title": "e\u0301a", "state": "ok"}]
    lines = render(BOOKS.choose("title,state", wide=False), items).splitlines()
    assert [width(line.rpartition(" ")[0]) for line in lines[1:]] == [6, 6]


def test_control_characters_never_reach_the_terminal() -> None:
    hostile = "a\x1b[2Jb\nc\x9bd\u202ee"
    shown = printable(hostile)
    assert shown == "a?[2Jb c?d?e"
    assert render(BOOKS.columns[:1], [{"title": hostile}], headers=False) == f"{shown}\n"


def test_colour_marks_only_status_words_and_keeps_the_width() -> None:
    columns = BOOKS.choose("state,title", wide=False)
    painted = render(columns, ITEMS, colour=True)
    assert painted.splitlines()[0] == "\x1b[2mSTATE\x1b[0m  \x1b[2mTITLE\x1b[0m"
    assert painted.splitlines()[1] == "\x1b[32mok\x1b[0m     Beta"
    assert "\x1b[33mwarn\x1b[0m" in painted
    assert render(columns, [{"title": "ready"}], headers=False, colour=True) == "-  ready\n"


@pytest.mark.parametrize(
    ("when", "environ", "terminal", "wanted"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("never", {}, True, False),
        ("always", {}, False, True),
        ("always", {"NO_COLOR": "1"}, False, True),
    ],
)
def test_colour_is_decided_by_flag_then_environment_then_terminal(
    when: str, environ: dict[str, str], terminal: bool, wanted: bool
) -> None:
    assert wants_colour(when, environ, terminal) is wanted
