"""Capture and logs over the API: real processes are sampled, secrets hidden, nodes asked."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from skulkd.api.capture import CAPTURE
from skulkd.api.logs import READ_LOGS
from skulkd.api.services import Services
from skulkd.observe.log_ring import LogRing
from skulkd.observe.samplers import Subject, last_lines, take_samples
from skulkd.worker.log_files import log_path
from tests.api.in_process import SECRET, serving, some_services
from tests.observe.records import RecordingWorker, a_record
from tests.peer_mesh import peer_mesh


@pytest.fixture
def stuck() -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that waits for ever in a function with a telling name."""
    code = "def waits_for_rank_one():\n  import sys; sys.stdin.read()\nwaits_for_rank_one()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@contextlib.asynccontextmanager
async def two_nodes(
    home: Path, *records: Any
) -> AsyncIterator[tuple[aiohttp.ClientSession, Services]]:
    """A client of node a; the records are on node b."""
    a, b = peer_mesh("node-a", "node-b")
    near = some_services(home, peers=a)
    far = some_services(home, peers=b)
    worker = RecordingWorker(list(records))
    far = replace(far, worker=worker)
    CAPTURE.serve(far)
    READ_LOGS.serve(far)
    async with serving(near) as url, aiohttp.ClientSession(url) as client:
        yield client, far
    far.monitor.close()


async def test_a_stuck_process_is_sampled_and_secrets_are_hidden(
    tmp_path: Path, stuck: subprocess.Popen[bytes]
) -> None:
    record = a_record("node-b", pid=stuck.pid)
    file = log_path(tmp_path / "logs", "runner-0")
    file.parent.mkdir()
    file.write_text(f"hello\nthe secret is {SECRET}\n--token abcdefghijk\n")
    async with two_nodes(tmp_path, record) as (client, _):
        order = {"runnerId": "runner-0", "sampleDurationSeconds": 1.0}
        async with client.post("/v1/diagnostics/cluster/node-b/capture", json=order) as answer:
            assert answer.status == 200
            text = await answer.text()
            body = await answer.json()
    assert SECRET not in text and "abcdefghijk" not in text
    samples = {one["name"]: one for one in body["processSamples"]}
    assert set(samples) == {"py-spy", "py-spy-later", "proc", "log", "daemon-log"}
    assert "State:" in samples["proc"]["stdout"] and "wchan=" in samples["proc"]["stdout"]
    assert samples["log"]["stdout"].startswith("hello\n")
    # Where py-spy is not installed, or may not look, the sample says so.
    spy = samples["py-spy"]
    assert "waits_for_rank_one" in spy["stdout"] if spy["ok"] else spy["error"]
    assert body["runner"]["runnerId"] == "runner-0"
    assert len(body["flightRecorder"]) == 2
    assert body["nodeDiagnostics"]["runtime"]["nodeId"] == "node-b"
    assert body["warnings"] == ["the runner has not reported its MLX memory yet"]


async def test_what_is_matched_and_what_is_not(tmp_path: Path) -> None:
    record = a_record("node-b", active_task_id="task-7")
    async with two_nodes(tmp_path, record) as (client, _):
        path = "/v1/diagnostics/cluster/node-b/capture"
        for order, status in (
            ({}, 200),
            ({"taskId": "task-7"}, 200),
            ({"runnerId": "runner-0", "taskId": "task-7"}, 200),
            ({"runnerId": "runner-0", "taskId": "task-8"}, 404),
            ({"runnerId": "nobody"}, 404),
            ({"sampleDurationSeconds": 11.0}, 422),
        ):
            async with client.post(path, json=order) as answer:
                assert answer.status == status, order
        async with client.post(path, json={"taskId": "task-7"}) as answer:
            body = await answer.json()
            assert body["warnings"][0] == "no process samples: the runner has no known pid"
        async with client.post("/v1/diagnostics/cluster/nobody/capture", json={}) as answer:
            assert answer.status == 404
        async with client.post("/v1/diagnostics/node/capture", json={}) as answer:
            assert (await answer.json())["runner"] is None


def test_a_process_that_is_gone_gives_reasons_not_failures(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    subject = Subject(gone.pid, 1.0, tmp_path / "no.log", lambda text: text)
    for sample in take_samples(subject, "linux"):
        assert not sample.ok
        assert sample.error
    for sample in take_samples(subject, "darwin"):
        assert not sample.ok


def test_last_lines_read_no_more_than_they_may(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert last_lines(file, 2) == ["line 998", "line 999"]
    assert last_lines(file, 1000, limit_bytes=25) == ["line 998", "line 999"]


async def test_log_lines_of_a_daemon_can_be_followed(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (client, far):
        ring = far.observe.log
        for number in range(3):
            ring.handle(logging.makeLogRecord({"msg": f"m{number} {SECRET}", "levelno": 20,
                                               "levelname": "INFO"}))  # fmt: skip
        path = "/v1/diagnostics/cluster/node-b/logs"
        async with client.get(path, params={"lines": 2}) as answer:
            body = await answer.json()
        assert [one["text"][:2] for one in body["lines"]] == ["m1", "m2"]
        assert body["cursor"] == 3
        ring.handle(logging.makeLogRecord({"msg": "m3", "levelno": 20, "levelname": "INFO"}))
        async with client.get(path, params={"after": 3}) as answer:
            later = await answer.json()
        assert [one["text"] for one in later["lines"]] == ["m3"]
        assert (later["cursor"], later["lost"]) == (4, 0)
        async with client.get(path, params={"lines": 0}) as answer:
            assert answer.status == 422


async def test_log_lines_of_a_runner_come_whole(tmp_path: Path) -> None:
    file = log_path(tmp_path / "logs", "r1")
    file.parent.mkdir()
    file.write_text("one\ntwo\n")
    async with two_nodes(tmp_path) as (client, _):
        path = "/v1/diagnostics/cluster/node-b/logs"
        async with client.get(path, params={"runner_id": "r1"}) as answer:
            body = await answer.json()
        assert ([one["text"] for one in body["lines"]], body["cursor"]) == (["one", "two"], 8)
        with file.open("a") as source:
            source.write("three\nhalf a li")
        async with client.get(path, params={"runner_id": "r1", "after": 8}) as answer:
            later = await answer.json()
        assert ([one["text"] for one in later["lines"]], later["cursor"]) == (["three"], 14)
        async with client.get(path, params={"runner_id": "../../etc/passwd"}) as answer:
            assert answer.status == 404


def test_the_ring_forgets_the_oldest_and_says_how_many() -> None:
    ring = LogRing(logging.Formatter("%(message)s"), capacity=3)
    for number in range(5):
        ring.handle(logging.makeLogRecord({"msg": str(number), "levelno": 20}))
    assert [one.text for one in ring.last(10)] == ["2", "3", "4"]
    kept, lost = ring.after(0, 10)
    assert ([one.text for one in kept], lost) == (["2", "3", "4"], 2)
    broken = logging.makeLogRecord({"msg": "%d", "args": ("x",), "levelno": 20})
    logging.raiseExceptions, before = False, logging.raiseExceptions
    try:
        ring.handle(broken)
    finally:
        logging.raiseExceptions = before
    assert ring.written == 5
