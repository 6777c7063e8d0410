"""Times of a trace: spans inside each other are one time, not two."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkctl.views.trace_times import Span, covered_us, self_us, stats_document
from skulkctl.views.traces import stats_items


def event(category: str, start: int, took: int, rank: int = 0) -> dict[str, Any]:
    facts = {"name": category, "startUs": start, "durationUs": took}
    return {**facts, "rank": rank, "category": category}


@pytest.mark.parametrize(
    ("spans", "own"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param([Span("mark", 5, 5)], {"mark": 0}, id="a-marker"),
        pytest.param([Span("a", 0, 10), Span("b", 10, 30)], {"a": 10, "b": 20}, id="in-turn"),
        pytest.param([Span("a", 0, 100), Span("b", 20, 50)], {"a": 70, "b": 30}, id="nested"),
        pytest.param(
            [Span("a", 0, 100), Span("b", 20, 50), Span("c", 30, 40)],
            {"a": 70, "b": 20, "c": 10},
            id="nested-twice",
        ),
        pytest.param([Span("a", 0, 100), Span("a", 20, 50)], {"a": 100}, id="of-one-kind"),
        pytest.param([Span("a", 0, 50), Span("b", 0, 10)], {"a": 40, "b": 10}, id="same-start"),
        pytest.param([Span("a", 0, 30), Span("b", 20, 50)], {"a": 20, "b": 30}, id="overlapping"),
    ],
)
def test_every_moment_belongs_to_the_innermost_span(spans: list[Span], own: dict[str, int]) -> None:
    assert self_us(spans) == own


SPANS = st.lists(
    st.builds(
        lambda category, start, took: Span(category, start, start + took),
        st.sampled_from("abc"),
        st.integers(0, 50),
        st.integers(0, 50),
    ),
    max_size=20,
)


@given(SPANS)
def test_self_times_add_up_to_the_time_that_was_traced(spans: list[Span]) -> None:
    assert sum(self_us(spans).values()) == covered_us(spans)
    for category, own in self_us(spans).items():
        assert own <= covered_us(span for span in spans if span.category == category)


def test_the_table_of_a_decode_with_its_steps() -> None:
    decode = [
        event("prefill", 0, 5_000_000),
        event("decode", 5_000_000, 14_500_000),
        *(event("decode", 5_000_000 + step * 1_450_000, 1_010_000) for step in range(10)),
        event("decode/comms", 6_000_000, 400_000),
    ]
    answer = {"taskId": "t", "traces": [*decode, event("prefill", 0, 4_000_000, rank=1)]}
    stats = stats_document(answer)
    assert stats["totalWallTimeUs"] == 19_500_000
    rows = stats_items(stats)
    told = {(row["rank"], row["category"]): (row["selfText"], row["totalText"]) for row in rows}
    assert told == {
        ("all", "decode"): ("14.10 s", "14.50 s"),
        ("all", "decode/comms"): ("400.0 ms", "400.0 ms"),
        ("all", "prefill"): ("9.00 s", "9.00 s"),
        ("0", "decode"): ("14.10 s", "14.50 s"),
        ("0", "decode/comms"): ("400.0 ms", "400.0 ms"),
        ("0", "prefill"): ("5.00 s", "5.00 s"),
        ("1", "prefill"): ("4.00 s", "4.00 s"),
    }
    first = [row["selfUs"] for row in rows if row["rank"] == "0"]
    assert sum(one for one in first if isinstance(one, int | float)) == 19_500_000
