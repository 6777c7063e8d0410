"""Stop strings: what is shown never depends on how the text arrives."""

from __future__ import annotations

import pytest
from hypothesis import given

from skulkd.runner.output.stopping import StopMatcher, first_stop, held_back
from tests.runner.chunks import assembled, cut_texts

STOPS = ["abcd", "bc", "aab", "\n\n"]


def shown(stops: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    deltas = [matcher.push(piece) for piece in pieces]
    if not matcher.stopped:
        deltas.append(matcher.finish())
    return deltas, matcher.stopped


@pytest.mark.parametrize(
    ("text", "stops", "expected", "stopped"),
    [
        ("plain", [], "plain", False),
        ("plain", [""], "plain", False),
        ("one END two", ["END"], "one ", True),
        ("one EN", ["END"], "one EN", False),
        ("xabcd", ["abcd", "bc"], "xa", True),
        ("aaab", ["aab"], "a", True),
        ("stop at both ab", ["ab", "xab"], "stop at both ", True),
        ("END", ["END"], "", True),
    ],
)
def test_text_is_cut_at_the_stop_that_completes_first(
    text: str, stops: list[str], expected: str, stopped: bool
) -> None:
    deltas, was_stopped = shown(stops, list(text))
    assert ("".join(deltas), was_stopped) == (expected, stopped)


@given(cut_texts(assembled(*STOPS)))
def test_any_chunking_shows_the_text_up_to_the_first_stop(sample: tuple[str, list[str]]) -> None:
    text, pieces = sample
    cut = first_stop(text, STOPS)
    deltas, stopped = shown(STOPS, pieces)
    assert stopped == (cut is not None)
    assert "".join(deltas) == text[:cut]


@given(cut_texts(assembled(*STOPS)))
def test_whatever_follows_nothing_shown_becomes_part_of_a_stop(
    sample: tuple[str, list[str]],
) -> None:
    matcher = StopMatcher(STOPS)
    said, read = "", ""
    for piece in sample[1]:
        read += piece
        said += matcher.push(piece)
        for rest in (stop[at:] for stop in STOPS for at in range(len(stop))):
            cut = first_stop(read + rest, STOPS)
            assert len(said) <= (len(read + rest) if cut is None else cut)


def test_a_partial_stop_waits_until_it_is_known_to_be_none() -> None:
    matcher = StopMatcher(["END"])
    assert [matcher.push(piece) for piece in ("x", "E", "N", "x")] == ["x", "", "", "ENx"]


@pytest.mark.parametrize(("text", "length"), [("", 0), ("abc", 3), ("xa", 1), ("abx", 0)])
def test_the_held_back_end_is_the_longest_beginning_of_a_marker(text: str, length: int) -> None:
    assert held_back(text, ["abcd"]) == length
