"""`events` and `logs` as one document, and the kinds of events."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from skulkctl import documents
from tests.cli.conftest import Cli
from tests.cli.stock import StockNode

EVENTS = [{"TaskDeleted": {"task_id": "t"}}, {"InstanceDeleted": {"instance_id": "i"}}]
LINES = [{"at": "2026-05-04T14:00:00.000", "level": "INFO", "text": "hello"}, {"text": "there"}]


def read(form: str, text: str) -> Any:
    return yaml.safe_load(text) if form == "yaml" else json.loads(text)


@pytest.fixture
def talking(stock: StockNode) -> StockNode:
    stock.on("GET", "/events", EVENTS)
    stock.on("GET", "/v1/diagnostics/node/logs", {"lines": LINES, "cursor": 2})
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
    monkeypatch.setattr(documents, "MOST_ITEMS", 1)
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
    assert "there is no such kind of event" in result.err
    assert "InstanceMoved, InstanceMoveRefused" in result.err and "TestEvent" not in result.err
    assert result.err.endswith(hint)
    assert talking.seen == []
