"""`skulkctl trace`: times without counting nested spans twice, the waterfall, finding, deleting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkctl.errors import NotFound, UsageMistake
from skulkctl.traces.rows import find_trace, microseconds, stats_rows, trace_rows, waterfall
from skulkctl.traces.times import Span, covered_us, self_us, trace_stats
from skulkd.wire.ids import CommandId, ModelId, NodeId, TaskId
from skulkd.wire.tracing import (
    ClusterDeleteTracesResponse,
    TraceEventResponse,
    TraceItem,
    TraceItems,
    TraceResponse,
    TraceSilence,
    TraceSourceNode,
)
from tests.cli.builders import as_json
from tests.cli.conftest import Cli
from tests.cli.stock import StockNode

DELETE = "/v1/cluster/traces/delete"


def event(category: str, start: int, took: int, rank: int = 0) -> TraceEventResponse:
    return TraceEventResponse(
        name=category, start_us=start, duration_us=took, rank=rank, category=category
    )


def a_trace(task_id: str, command_id: str | None = None) -> TraceItem:
    return TraceItem(
        task_id=TaskId(task_id),
        created_at="2026-05-04T14:00:00.123456+00:00",
        file_size=10,
        model_id=ModelId("me/tiny"),
        command_id=None if command_id is None else CommandId(command_id),
        ranks=[0],
        world_size=2,
        partial=True,
        source_nodes=[
            TraceSourceNode(node_id=NodeId("n1"), friendly_name="kite1"),
            TraceSourceNode(node_id=NodeId("n2")),
        ],
    )


LISTED = TraceItems(traces=[a_trace("task-9")])


def deleted(*silent: TraceSilence) -> ClusterDeleteTracesResponse:
    return ClusterDeleteTracesResponse(
        deleted=[TaskId("task-9")], not_found=[], unreachable_nodes=list(silent)
    )


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
    events = [*decode, event("prefill", 0, 4_000_000, rank=1)]
    stats = trace_stats(TraceResponse(task_id=TaskId("t"), traces=events))
    assert stats["totalWallTimeUs"] == 19_500_000
    rows = stats_rows(stats)
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


def test_an_empty_trace_took_no_time() -> None:
    stats = trace_stats(TraceResponse(task_id=TaskId("t"), traces=[]))
    assert (stats["totalWallTimeUs"], stats_rows(stats)) == (0, [])


def test_a_row_tells_missing_ranks_and_the_names_of_nodes() -> None:
    stock = TraceItem(task_id=TaskId("t"), created_at="2026-05-04T14:00:00", file_size=1)
    row, unknown = trace_rows([a_trace("task-9"), stock])
    assert (row["ranksText"], row["nodes"]) == ("1/2 PARTIAL", ["kite1", "n2"])
    assert row["createdAt"] == "2026-05-04T14:00:00"
    # A stock node does not tell, and nothing is made up for it.
    assert unknown["ranksText"] is None
    assert "worldSize" not in unknown


def test_the_waterfall_is_drawn_over_ranks() -> None:
    events = [
        event("prefill", 0, 50_000),
        event("decode_step", 50_000, 10_000),
        event("decode_step", 60_000, 40_000),
        event("first_token", 60_000, 0),
        event("prefill", 10_000, 40_000, rank=1),
    ]
    drawn = waterfall(events, 70, wide=False).splitlines()
    assert drawn[0].split() == ["rank", "span", "took", "0", "100.0", "ms"]
    assert [line.split()[:2] for line in drawn[1:]] == [
        ["0", "prefill"], ["0", "decode_step"], ["0", "first_token"], ["1", "prefill"],
    ]  # fmt: skip
    assert drawn[2].split()[2:4] == ["x2", "50.0"]
    first, second = drawn[1].index("▮"), drawn[2].index("▮")
    assert first < second
    assert drawn[3].count("·") == 1
    assert waterfall([], 70, wide=False) == "the trace is empty\n"


@pytest.mark.parametrize(("value", "text"), [(5, "5 us"), (4100, "4.1 ms"), (2_350_000, "2.35 s")])
def test_microseconds_have_the_unit_that_fits(value: float, text: str) -> None:
    assert microseconds(value) == text


def test_a_trace_is_found_by_prefix_or_by_the_id_of_the_completion() -> None:
    traces = [a_trace("ab1", "c1"), a_trace("ab2", "d2"), a_trace("xy3")]
    assert find_trace(traces, "ab1", None) == "ab1"
    assert find_trace(traces, None, "chatcmpl-d2") == "ab2"
    assert find_trace(traces, None, "d2") == "ab2"
    for typed, command in (("q", None), (None, "zz")):
        with pytest.raises(NotFound):
            find_trace(traces, typed, command)
    with pytest.raises(UsageMistake):
        find_trace(traces, "ab", None)


def test_a_trace_is_deleted_on_every_node(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster/traces", as_json(LISTED))
    stock.on("POST", DELETE, as_json(deleted()))
    assert cli("trace", "rm", "task", "--dry-run").out == "would delete task-9\n"
    assert cli("trace", "rm", "task").code == 9
    assert [seen.path for seen in stock.seen if seen.method == "POST"] == []
    assert cli("trace", "rm", "task", "task-9", "--yes") == (
        0,
        "deleted task-9\n",
        "note: task matches trace task-9  me/tiny\n",
    )
    assert [seen.body for seen in stock.seen if seen.path == DELETE] == [b'{"taskIds":["task-9"]}']
    assert cli("trace", "rm", "other", "--yes").code == 3
    assert cli("trace", "rm", "tas", "--yes").code == 2


def test_a_node_that_did_not_answer_makes_it_partial(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster/traces", as_json(LISTED))
    silent = TraceSilence(node_id=NodeId("node-b"), error="no answer in 5 s")
    stock.on("POST", DELETE, as_json(deleted(silent)))
    result = cli("trace", "rm", "task-9", "--yes")
    assert (result.code, result.out) == (8, "deleted task-9\n")
    assert "node-b: no answer in 5 s" in result.err
