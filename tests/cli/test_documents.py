"""`events` and `logs`: as lines, as one document, followed; the kinds of events."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest
import yaml

from skulkctl.commands import logs
from skulkctl.contexts import Context, Target
from skulkctl.daemon.client import Daemon
from skulkctl.events.rows import event_text, log_text
from skulkctl.output import formats
from skulkd.wire.event_stream import EventLine
from skulkd.wire.events import (
    BaseEvent,
    InstanceDeleted,
    InstanceMoved,
    InstanceMoveRefused,
    InstanceUnloaded,
)
from skulkd.wire.ids import InstanceId, ModelId, NodeId
from skulkd.wire.logs import LogLine, LogLines, LogQuery
from tests.cli.builders import as_json
from tests.cli.conftest import Cli
from tests.cli.stock import KITE1, KITE2, Reply, Seen, StockNode, recorded

EVENTS = [{"TaskDeleted": {"task_id": "t"}}, {"InstanceDeleted": {"instance_id": "i"}}]
LOG = LogLines(
    node_id=NodeId(KITE1),
    lines=[
        LogLine(at="2026-05-04T14:00:00.000", level="INFO", text="hello"),
        LogLine(text="there"),
    ],
    cursor=2,
)
LINES = as_json(LOG)["lines"]


def read(form: str, text: str) -> Any:
    return yaml.safe_load(text) if form == "yaml" else json.loads(text)


@pytest.fixture
def talking(stock: StockNode) -> StockNode:
    stock.on("GET", "/events", EVENTS)
    stock.on("GET", "/v1/diagnostics/node/logs", as_json(LOG))
    return stock


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_events_and_logs_are_one_document(cli: Cli, talking: StockNode, form: str) -> None:
    events = read(form, cli("events", "-o", form).out)
    assert (events["apiVersion"], events["kind"]) == ("skulkctl/v1", "EventList")
    assert [item["kind"] for item in events["items"]] == ["TaskDeleted", "InstanceDeleted"]
    logs = read(form, cli("logs", "-o", form).out)
    assert (logs["kind"], logs["items"]) == ("LogLineList", LINES)


def test_jsonl_stays_one_object_per_line(cli: Cli, talking: StockNode) -> None:
    assert [json.loads(line) for line in cli("logs", "-o", "jsonl").out.splitlines()] == LINES
    assert len(cli("events", "-o", "jsonl").out.splitlines()) == 2


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("command", ["events", "logs"])
def test_a_document_that_never_ends_is_refused(
    cli: Cli, talking: StockNode, command: str, form: str
) -> None:
    result = cli(command, "--follow", "-o", form)
    assert (result.code, result.out) == (2, "")
    assert f"--follow cannot print {form}" in result.err
    assert "--follow -o jsonl" in result.err
    assert talking.seen == []


def test_a_list_too_long_for_a_document_is_refused(
    cli: Cli, talking: StockNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MOST_ITEMS", 1)
    result = cli("events", "-o", "json")
    assert (result.code, result.out) == (4, "")
    assert "hint: one JSON object per line:  -o jsonl\n" in result.err


@pytest.mark.parametrize("typed", ["TaskDeleted", "taskdeleted", " taskdeleted ,"])
def test_a_kind_of_event_may_be_typed_in_any_case(cli: Cli, talking: StockNode, typed: str) -> None:
    assert cli("events", "--kind", typed, "-o", "name").out == "TaskDeleted\n"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("Foo", ""), ("TaskDeletd", "hint: did you mean TaskDeleted?\n"), ("", ""), (",", "")],
)
def test_an_unknown_kind_of_event_is_refused_with_all_kinds(
    cli: Cli, talking: StockNode, typed: str, hint: str
) -> None:
    result = cli("events", "--kind", f"TaskDeleted,{typed}" if typed == "Foo" else typed)
    assert (result.code, result.out) == (2, "")
    assert "no such kind of event" in result.err
    assert "InstanceMoved, InstanceMoveRefused" in result.err and "TestEvent" not in result.err
    assert result.err.endswith(hint)
    assert talking.seen == []


def an_event(event: BaseEvent) -> EventLine:
    """A line as the daemon writes it."""
    body = event.model_dump(mode="json", by_alias=False)
    kind = type(event).__name__
    return EventLine(index=7, at="2026-05-04T14:00:00.123+00:00", kind=kind, event=body)


HEAD = "      7  2026-05-04T14:00:00.123  "
MOVED = InstanceMoved(
    instance_id=InstanceId("7f3c2a10-0b52-4a6e-9a61-1f0c6f1b2d01"),
    model_id=ModelId("a/b"),
    cause="memory-guard",
    from_nodes=[NodeId("n1")],
    to_nodes=[NodeId("n2"), NodeId("n3")],
    names={NodeId("n1"): "kite1", NodeId("n2"): "kite2"},
    reason="no memory",
    attempt=1,
    most=3,
)
STAYED = InstanceMoveRefused(
    instance_id=MOVED.instance_id,
    model_id=MOVED.model_id,
    nodes=[NodeId("n1")],
    cause="memory-guard",
    reason="no memory",
    refusal="DoesNotFit",
    why_not="8 GiB of 4 GiB",
    attempt=2,
    most=3,
)

UNLOADED = InstanceUnloaded(
    instance_id=MOVED.instance_id, model_id=MOVED.model_id, cause="idle", idle_seconds=300.0
)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            MOVED,
            "InstanceMoved          7f3c2a10 a/b kite1 -> kite2,n3 (attempt 1 of 3) no memory\n",
        ),
        (
            STAYED,
            "InstanceMoveRefused    7f3c2a10 a/b n1 not moved: DoesNotFit: 8 GiB of 4 GiB;"
            " (attempt 2 of 3) no memory\n",
        ),
        (
            UNLOADED,
            "InstanceUnloaded       7f3c2a10 a/b idle for 5m\n",
        ),
        (
            UNLOADED.model_copy(update={"cause": "memory", "wanted_by": "c/d"}),
            "InstanceUnloaded       7f3c2a10 a/b c/d needs its memory\n",
        ),
        (
            InstanceDeleted(instance_id=InstanceId("i")),
            "InstanceDeleted        instance_id=i\n",
        ),
    ],
)
def test_an_event_is_one_line(event: BaseEvent, text: str) -> None:
    assert event_text(an_event(event), None, wide=False) == HEAD + text
    for room in (60, 100, 140):
        shown = event_text(an_event(event), room, wide=True).splitlines()
        assert max(map(len, shown)) <= room
        assert event_text(an_event(event), room, wide=False).count("\n") == 1


def test_an_event_of_the_future_shows_its_fields() -> None:
    line = EventLine(index=7, at=None, kind="NewKind", event={"NewKind": {"a": 1, "event_id": "e"}})
    assert event_text(line, None, wide=False) == "      7  -  NewKind                a=1\n"
    odd = EventLine(index=7, at=None, kind="InstanceMoved", event={"InstanceMoved": {"a": "b"}})
    assert event_text(odd, None, wide=False).endswith(" a=b\n")


def test_a_log_line_has_its_time_and_level_or_neither() -> None:
    first, second = LOG.lines
    assert log_text(first, None) == "2026-05-04T14:00:00.000Z INFO     hello\n"
    assert log_text(second, None) == "there\n"
    assert log_text(LogLine(text="\x1b[31mred"), None) == "?[31mred\n"


def test_following_a_log_asks_for_what_came_since(
    stock: StockNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_EVERY_S", 0.0)

    def answer(seen: Seen) -> Any:
        return as_json(LOG.model_copy(update={"cursor": len(stock.seen), "lost": 3}))

    stock.on("GET", f"/v1/diagnostics/cluster/{KITE2}/logs", answer)
    daemon = Daemon(Target(Context("lab", (stock.url,)), None))
    found = list(islice(logs._batches(daemon, KITE2, LogQuery(lines=9), follow=True), 3))
    daemon.close()
    assert [batch.lost for batch in found] == [3, 3, 3]
    assert [seen.path.partition("?")[2] for seen in stock.seen] == [
        "lines=9",
        "lines=5000&after=1",
        "lines=5000&after=2",
    ]


def test_a_runner_is_found_by_the_beginning_of_its_id(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/state", recorded("state"))
    stock.on("GET", f"/v1/diagnostics/cluster/{KITE2}/logs", as_json(LOG))
    assert cli("logs", "--runner", "run-b", "-n", "1").code == 0
    assert stock.seen[-1].path.endswith("?runner_id=run-b&lines=1")
    assert cli("logs", "kite1", "--runner", "run-b").code == 4
    assert "/v1/diagnostics/cluster/" + KITE1 in stock.seen[-1].path


def test_a_server_without_times_is_told_about_and_shows_all(cli: Cli, talking: StockNode) -> None:
    result = cli("events", "--since", "1h", "-o", "name")
    assert (result.code, result.out) == (0, "TaskDeleted\nInstanceDeleted\n")
    assert result.err.startswith("warning: this server does not support --since and --follow")


def test_events_of_our_own_daemon_are_asked_for_with_every_wish(cli: Cli, stock: StockNode) -> None:
    stock.server = "skulkd/9"
    lines = [an_event(MOVED), an_event(STAYED)]
    body = "".join(f"{line.model_dump_json()}\n" for line in lines) + "not json\n"
    stock.on("GET", "/v1/cluster", {})
    stock.on("GET", "/v1/events", Reply(200, body, text=True))
    result = cli("events", "-f", "--limit", "5", "--kind", "instancemoved", "-o", "jsonl", "-v")
    assert [json.loads(line) for line in result.out.splitlines()] == [
        line.model_dump() for line in lines
    ]
    assert "ignored an event that cannot be read" in result.err
    assert stock.seen[-1].path == "/v1/events?kind=InstanceMoved&follow=true&limit=5"


@pytest.mark.parametrize("option", [("events", "--since"), ("logs", "--before")])
def test_what_is_not_a_time_is_a_usage_mistake(
    cli: Cli, talking: StockNode, option: tuple[str, str]
) -> None:
    result = cli(*option, "yesterday")
    assert (result.code, talking.seen) == (2, [])
    assert "'yesterday' is neither an age nor a time" in result.err
