"""Sizes, durations and times, read and written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkctl.output.units import (
    age_text,
    parse_duration,
    parse_size,
    parse_time,
    size_text,
    time_text,
)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (63_243_394_253, "58.9 GiB"),
        (1024**6, "1024.0 PiB"),
    ],
)
def test_size_is_written_with_the_unit_that_fits(size: int, text: str) -> None:
    assert size_text(size) == text
    assert size_text(size, gap="") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("10GiB", 10 * 1024**3), ("10g", 10 * 1024**3), ("10 GB", 10**10), ("1.5KiB", 1536)],
)
def test_size_is_read_in_either_base(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "10XB", "1e9", "ten"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=2**60))
def test_size_survives_writing_and_reading_within_a_tenth_of_a_unit(size: int) -> None:
    assert abs(parse_size(size_text(size)) - size) <= max(1, size // 19)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (0.44, "0.4s"),
        (9.96, "10s"),
        (41, "41s"),
        (59.6, "1m"),
        (542, "9m2s"),
        (7325, "2h2m"),
        (3600, "1h"),
        (273_600, "3d4h"),
        (-42, "-42s"),
    ],
)
def test_age_shows_its_two_largest_units(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15", 15), ("15s", 15), ("300ms", 0.3), ("1h30m", 5400), ("2d", 172_800), (" 5M ", 300)],
)
def test_duration_is_read_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "0", "0s", "-5s", "5 m", "5m!"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|must be greater than zero"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["2026-01-02T03:04:05.678901Z", "2026-01-02T03:04:05.678901+00:00"]
)
def test_both_spellings_of_the_api_become_one(text: str) -> None:
    moment = parse_time(text)
    assert moment == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert time_text(moment) == "2026-01-02T03:04:05.678901Z"


def test_a_text_that_is_no_time_is_nothing() -> None:
    assert parse_time("yesterday") is None
