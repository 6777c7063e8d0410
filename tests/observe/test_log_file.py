"""`skulk.log`: bounded, honest about what it lost, and read again over the API."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from skulkd.log import JsonFormatter, LineQueue
from skulkd.log_file import RETRY_S, FileSink, LogFileLimits
from skulkd.observe.log_history import lines_before
from skulkd.rotating import parts
from tests.api.in_process import SECRET, serving, some_services
from tests.daemon_process import spawn_daemon, wait_until

SMALL = LogFileLimits(max_bytes=2000, files=3)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def a_sink(path: Path, clock: Clock) -> FileSink:
    queue = LineQueue(JsonFormatter(str, "kite1"), logging.INFO)
    return FileSink(path, SMALL, queue, clock)


def say(sink: FileSink, *texts: str) -> None:
    """As the sink's own thread would, but now."""
    for text in texts:
        record = logging.LogRecord("skulkd.api", logging.INFO, "a.py", 1, text, None, None)
        sink._write(sink.handler.format(record))


def test_lines_are_json_and_never_more_than_the_limits(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "skulk.log"
    sink = a_sink(path, Clock())
    say(sink, *(f"line {number}" for number in range(200)))
    files = [file for file in parts(path, 9) if file.exists()]
    assert len(files) == SMALL.files
    assert all(file.stat().st_size <= SMALL.max_bytes for file in files)
    assert sink.bytes_on_disk == sum(file.stat().st_size for file in files)
    last = json.loads(path.read_text().splitlines()[-1])
    assert (last["msg"], last["node_id"]) == ("line 199", "kite1")
    assert path.stat().st_mode & 0o777 == 0o600
    sink.stop()


def test_a_disk_that_is_gone_costs_lines_and_comes_back(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    clock = Clock()
    sink = a_sink(tmp_path / "logs" / "skulk.log", clock)
    say(sink, "one", "two")
    assert sink.trouble and sink.lost == 2
    (tmp_path / "logs").unlink()
    say(sink, "too early to try again")
    assert sink.lost == 3
    clock.now = RETRY_S
    say(sink, "back")
    assert sink.trouble is None
    assert json.loads(sink.path.read_text())["msg"] == "back"
    sink.stop()


def write_log(path: Path, numbers: Iterable[int], more: str = "") -> None:
    """A line a second, numbered."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {"ts": f"2026-05-04T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.000Z",
         "level": "INFO", "msg": f"line {number} {more}"}
        for number in numbers
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def numbers_of(lines: Iterable[Any]) -> list[int]:
    return [int(line.text.split()[1]) for line in lines]


def test_older_lines_are_found_by_time_over_all_parts(tmp_path: Path) -> None:
    files = parts(tmp_path / "skulk.log", 3)
    write_log(files[0], range(2000, 4000), "x" * 200)  # more than one step of the bisection
    write_log(files[1], range(1000, 2000))
    assert numbers_of(lines_before(files, None, 3)) == [3997, 3998, 3999]
    at = "2026-05-04T00:50:00.000+00:00"  # 3000 seconds
    assert numbers_of(lines_before(files, at, 2)) == [2998, 2999]
    at = "2026-05-04T00:33:21.000+00:00"  # 2001 seconds: the rest is in the older part
    assert numbers_of(lines_before(files, at, 3)) == [1998, 1999, 2000]
    assert lines_before(files, "2026-05-03T00:00:00", 5) == []
    assert lines_before([tmp_path / "none"], None, 5) == []


def test_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "skulk.log"
    write_log(file, range(3))
    file.write_bytes(b'cut off"}\n[]\n\xff\n' + file.read_bytes() + b'{"ts": "2026')
    assert numbers_of(lines_before([file], None, 10)) == [0, 1, 2]


def test_no_answer_reads_more_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "skulk.log"
    write_log(file, range(100))
    monkeypatch.setattr("skulkd.observe.log_history.MOST_BYTES", 300)
    assert 0 < len(lines_before([file], None, 100)) < 6


async def test_the_api_reads_on_in_the_file(tmp_path: Path) -> None:
    node = some_services(tmp_path)
    assert node.observe.log_file is not None
    write_log(node.observe.log_file.path, range(10), f"{SECRET} token=abcdefgh")
    node.observe.log.handle(logging.makeLogRecord({"msg": "now", "levelno": 20}))
    async with serving(node) as url, aiohttp.ClientSession(url) as client:
        path = "/v1/diagnostics/node/logs"
        async with client.get(path, params={"lines": 3}) as answer:
            text, body = await answer.text(), await answer.json()
        assert [one["text"][:6] for one in body["lines"]] == ["line 8", "line 9", "now"]
        assert body["lines"][0]["at"] == "2026-05-04T00:00:08.000+00:00"
        assert SECRET not in text and "abcdefgh" not in text
        asked = {"lines": 2, "before": "2026-05-04T02:00:05+02:00"}
        async with client.get(path, params=asked) as answer:
            body = await answer.json()
        assert [one["text"][:6] for one in body["lines"]] == ["line 3", "line 4"]
        for wrong in ("yesterday", "2026-05-04T00:00:00"):
            async with client.get(path, params={"before": wrong}) as answer:
                assert answer.status == 422


def test_lines_of_the_start_before_are_still_there(tmp_path: Path) -> None:
    first = spawn_daemon(tmp_path, "--name", "kite1")
    first.wait_ready()
    gone = first.node_id
    assert first.stop() == 0
    [file] = tmp_path.rglob("skulk.log")
    assert any(gone in json.loads(line)["msg"] for line in file.read_text().splitlines())
    second = spawn_daemon(tmp_path, "--name", "kite1")
    try:
        second.wait_ready()

        def told() -> str:
            lines = second.get("/v1/diagnostics/node/logs?lines=500")["lines"]
            return "\n".join(line["text"] for line in lines)

        wait_until(lambda: second.node_id in told(), "the new start in the log", 300)
        assert told().index(gone) < told().index(second.node_id)
        [node] = second.get("/store/storage/cluster")["nodes"]
        assert node["storage"]["logBytes"] >= file.stat().st_size > 0
    finally:
        second.kill()
        first.kill()
