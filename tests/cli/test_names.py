"""The one rule for what people type instead of a whole id."""

from __future__ import annotations

import pytest

from skulkctl.errors import UsageMistake
from skulkctl.names import Candidate, find_one

THINGS = [
    Candidate("one", ("7f3c2a10-0b52",), ("skulk/Tiny-1B", "Tiny-1B"), "7f3c2a10-0b52  Tiny-1B"),
    Candidate("two", ("7f3d0000-0001",), ("skulk/Tiny-1B-4bit",), "7f3d0000-0001  Tiny-1B-4bit"),
    Candidate("three", ("beef0000-0001",), ("other/Large", "Large"), "beef0000-0001  Large"),
]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("7f3c2a10-0b52", "one"),
        ("7F3C2A10-0B52", "one"),
        ("7f3c", "one"),
        ("b", "three"),
        ("tiny-1b", "one"),
        ("skulk/Tiny-1B", "one"),
        ("skulk/tiny-1b-", "two"),
        ("lar", "three"),
        ("", None),
        ("nothing", None),
    ],
)
def test_reading_takes_a_whole_name_or_a_beginning_that_is_unique(
    typed: str, found: str | None
) -> None:
    assert find_one("thing", THINGS, typed) == found


@pytest.mark.parametrize(
    ("typed", "found", "notes"),
    [
        ("7f3c2a10-0b52", "one", []),
        ("tiny-1b", "one", []),
        ("7f3c", "one", ["7f3c matches thing 7f3c2a10-0b52  Tiny-1B"]),
        ("BEEF", "three", ["BEEF matches thing beef0000-0001  Large"]),
        ("larg", "three", ["larg matches thing beef0000-0001  Large"]),
        ("skulk/Tiny-1B-", "two", ["skulk/Tiny-1B- matches thing 7f3d0000-0001  Tiny-1B-4bit"]),
        ("nothing", None, []),
        ("", None, []),
    ],
)
def test_changing_says_what_was_matched(typed: str, found: str | None, notes: list[str]) -> None:
    told: list[str] = []
    assert find_one("thing", THINGS, typed, told.append) == found
    assert told == notes


@pytest.mark.parametrize(
    ("typed", "candidates"),
    [
        ("b", ("beef0000-0001  Large",)),
        ("bee", ("beef0000-0001  Large",)),
        ("Lar", ("beef0000-0001  Large",)),
        ("7f3", ("7f3c2a10-0b52  Tiny-1B", "7f3d0000-0001  Tiny-1B-4bit")),
    ],
)
def test_changing_needs_four_characters_or_a_whole_name(
    typed: str, candidates: tuple[str, ...]
) -> None:
    told: list[str] = []
    with pytest.raises(UsageMistake) as raised:
        find_one("thing", THINGS, typed, told.append)
    assert raised.value.what == f"{typed} is too short to identify the thing to change"
    assert raised.value.why == candidates
    assert raised.value.hints == ("type at least 4 characters, or the full name",)
    assert told == []


@pytest.mark.parametrize("note", [None, print])
def test_what_matches_several_things_is_refused_with_all_of_them(note: None) -> None:
    with pytest.raises(UsageMistake) as raised:
        find_one("thing", [*THINGS, Candidate("x", ("7f3c9",), (), "7f3c9")], "7f3c", note)
    assert raised.value.what == "7f3c matches 2 things"
    assert raised.value.why == ("7f3c2a10-0b52  Tiny-1B", "7f3c9")


def test_of_many_matches_the_first_are_listed_and_the_others_counted() -> None:
    many = [Candidate(n, (f"qwen-{n:02}",), (), f"qwen-{n:02}") for n in range(45)]
    with pytest.raises(UsageMistake) as raised:
        find_one("model", many, "qwen")
    assert raised.value.what == "qwen matches 45 models"
    assert raised.value.why == (*(f"qwen-{n:02}" for n in range(12)), "and 33 more")
