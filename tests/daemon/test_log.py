"""The log on real file descriptors: form, redaction, slow and vanished readers."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from skulkd.log import (
    REQUEST_ID,
    HumanFormatter,
    JsonFormatter,
    LineQueue,
    LogSystem,
    Sink,
    hide_values,
    start_logging,
)
from skulkd.machine.redact import redact_text
from tests.daemon_process import wait_until

log = logging.getLogger("skulkd.sample.module")


class Pipe:
    """A pipe whose reading end may be drained, ignored or closed."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def read_all(self) -> str:
        os.close(self.writer)
        with os.fdopen(self.reader) as stream:
            return stream.read()


@pytest.fixture
def pipes() -> Iterator[tuple[Pipe, Pipe]]:
    root = logging.getLogger()
    level = root.level
    yield Pipe(), Pipe()
    root.setLevel(level)


def begin(pipes: tuple[Pipe, Pipe], **options: Any) -> LogSystem:
    settings = {"level": logging.INFO, "redact": redact_text, "json_hostname": "kite1", **options}
    return start_logging(stderr_fd=pipes[0].writer, stdout_fd=pipes[1].writer, **settings)


def test_a_line_is_for_people_on_one_pipe_and_json_on_the_other(pipes: tuple[Pipe, Pipe]) -> None:
    system = begin(pipes)
    token = REQUEST_ID.set("ab-1")
    log.info("placed %s", "llama")
    REQUEST_ID.reset(token)
    log.warning("later")
    system.stop()
    human = pipes[0].read_all().splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO placed llama request_id=ab-1", human[0]
    )
    assert human[1].endswith(" WARNING later")
    first, second = (json.loads(line) for line in pipes[1].read_all().splitlines())
    assert first == {
        "ts": first["ts"],
        "level": "INFO",
        "node_id": "kite1",
        "component": "sample",
        "module": "skulkd.sample.module",
        "function": "test_a_line_is_for_people_on_one_pipe_and_json_on_the_other",
        "line": first["line"],
        "msg": "placed llama",
        "request_id": "ab-1",
    }
    assert list(first)[:8] == [
        "ts", "level", "node_id", "component", "module", "function", "line", "msg",
    ]  # fmt: skip
    assert "request_id" not in second


@pytest.mark.parametrize(
    ("name", "component"), [("skulkd.api.app", "api"), ("aiohttp", "aiohttp"), ("a.b", "b")]
)
def test_the_component_is_the_second_part_of_the_module(name: str, component: str) -> None:
    record = logging.LogRecord(name, logging.INFO, __file__, 1, "x", None, None)
    assert json.loads(JsonFormatter(str, "h").format(record))["component"] == component


def test_debug_lines_need_verbose_and_never_go_to_json(pipes: tuple[Pipe, Pipe]) -> None:
    system = begin(pipes, level=logging.DEBUG)
    log.debug("detail")
    system.stop()
    assert re.search(r"DEBUG skulkd\.sample\.module:test_\w+:\d+ detail", pipes[0].read_all())
    assert pipes[1].read_all() == ""


def test_an_exception_is_a_field_of_its_own(pipes: tuple[Pipe, Pipe]) -> None:
    system = begin(pipes)
    log.error("failed", exc_info=ValueError("the cause"))
    system.stop()
    assert "ValueError: the cause" in pipes[0].read_all()
    line = json.loads(pipes[1].read_all())
    assert line["msg"] == "failed"
    assert line["exception"].endswith("ValueError: the cause")


def test_secrets_are_hidden_in_messages_and_tracebacks(pipes: tuple[Pipe, Pipe]) -> None:
    system = begin(pipes, redact=hide_values(redact_text, ["opensesame", ""]))
    error = ValueError("with opensesame inside")
    log.error("token=abcdef123456, opensesame in %s", "/path/opensesame", exc_info=error)
    system.stop()
    for text in (pipes[0].read_all(), pipes[1].read_all()):
        assert "opensesame" not in text
        assert "abcdef123456" not in text
        assert "ValueError: with [redacted] inside" in text


def test_a_message_can_neither_forge_a_line_nor_steer_the_terminal() -> None:
    text = "one\ntwo\rthree\x1b[31m ä"
    record = logging.LogRecord("a", logging.INFO, __file__, 1, text, None, None)
    line = HumanFormatter(str, verbose=False).format(record)
    assert line.endswith(r"INFO one\ntwo\rthree\x1b[31m ä")


def test_a_reader_who_does_not_read_costs_lines_and_not_time() -> None:
    pipe = Pipe()
    handler = LineQueue(HumanFormatter(str, verbose=False), logging.INFO, size=50)
    sink = Sink("stderr", pipe.writer, handler)
    sink.start()
    record = logging.LogRecord("a", logging.INFO, __file__, 1, "x" * 4000, None, None)
    for _ in range(500):
        handler.handle(record)
    lost = handler.dropped
    assert lost > 0
    sink.stop(deadline_s=0.2)

    # Once somebody reads again, everything adds up and the loss is told.
    heard: list[bytes] = []
    reading = threading.Thread(
        target=lambda: heard.extend(iter(lambda: os.read(pipe.reader, 65536), b""))
    )
    reading.start()
    sink.stop()
    os.close(pipe.writer)
    reading.join(300)
    os.close(pipe.reader)
    text = b"".join(heard).decode()
    assert sum(int(n) for n in re.findall(r"WARNING (\d+) log lines were lost", text)) == lost
    assert text.count("INFO xxx") == 500 - lost


def test_a_non_blocking_descriptor_loses_nothing() -> None:
    pipe = Pipe()
    os.set_blocking(pipe.writer, False)
    handler = LineQueue(HumanFormatter(str, verbose=False), logging.INFO, size=500)
    sink = Sink("stderr", pipe.writer, handler)
    sink.start()
    record = logging.LogRecord("a", logging.INFO, __file__, 1, "x" * 4000, None, None)
    for _ in range(100):
        handler.handle(record)
    heard: list[bytes] = []
    reading = threading.Thread(
        target=lambda: heard.extend(iter(lambda: os.read(pipe.reader, 65536), b""))
    )
    reading.start()
    sink.stop(deadline_s=20)
    os.close(pipe.writer)
    reading.join(300)
    os.close(pipe.reader)
    assert b"".join(heard).count(b"INFO xxx") == 100


def test_a_closed_reader_switches_its_sink_off_with_one_warning(pipes: tuple[Pipe, Pipe]) -> None:
    os.close(pipes[1].reader)
    system = begin(pipes)
    for number in range(20):
        log.info("line %d", number)
    stdout = system.sinks[1]
    wait_until(lambda: stdout.broken, "the sink to notice")
    log.info("after")
    system.stop()
    os.close(pipes[1].writer)
    text = pipes[0].read_all()
    assert text.count("nobody reads the log on stdout any more") == 1
    assert "after" in text
