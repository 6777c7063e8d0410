"""Every output and message shown on a page is what the programs print now.

`data/cluster.json` has the answers of a real cluster of three nodes, by method and path; a time is
written there as `@now-3s`. The commands of a page run in order in this process, against a server
with these answers, on a terminal of 120 columns. The notation is that of `console_blocks`.
Messages that tables explain come from states that are hard to reach; they are looked up in the
texts of the code.
"""

from __future__ import annotations

import ast
import functools
import io
import json
import re
import shlex
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from skulkctl.main import main
from tests.cli.conftest import home, save_context
from tests.cli.stock import Reply, Seen, StockNode
from tests.project.console_blocks import Typed, examples, first_difference

__all__ = ["home"]

ROOT = Path(__file__).parents[2]
ANSWERS = Path(__file__).parent / "data" / "cluster.json"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_EXAMPLES = [page for page in PAGES if examples(page.read_text(encoding="utf-8"))]
# Pages with drawings of their own; reference.md is generated.
WITH_DRAWINGS = ("architecture.md", "performance.md", "reference.md")
INPUT = {"console", "sh", "cron", "yaml"}
# The first columns of tables that explain what a program says.
EXPLAINED = ("the message says", "the refusal says", "error message", "cause", "state", "verdict")
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_SPAN = re.compile(r"`([^`]+)`")
# Names and numbers of an example, and what it leaves out.
_FILLED_IN = re.compile(r"…|\b(?:[AB]|kite\d|SIG[A-Z]+|rdma_en\d|en\d)\b|\d[\d.]*(?: Gb/s)?")
_FENCE = re.compile(r"^```(.*)\n(?:.*\n)*?```$", re.MULTILINE)


class Terminal(io.StringIO):
    """What a person sees: both streams, in the order in which they are written."""

    def isatty(self) -> bool:
        return True


def answer(seen: Seen) -> Reply:
    """What the recorded cluster answered, with its times made relative to now."""
    now = datetime.now(UTC)

    def moment(match: re.Match[str]) -> str:
        return (now + timedelta(seconds=int(match[1]))).isoformat().replace("+00:00", "Z")

    text = re.sub(r"@now([-+]\d+)s", moment, ANSWERS.read_text(encoding="utf-8"))
    found: Any = json.loads(text)[f"{seen.method} {seen.path}"]
    return Reply(found["status"], found["body"], isinstance(found["body"], str), found["type"])


@pytest.fixture
def short_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with a path so short that no line of an output wraps because of it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        monkeypatch.setenv("SKULK_HOME", path)
        yield Path(path)


@pytest.fixture
def cluster(short_home: Path) -> Iterator[StockNode]:
    node = StockNode(server="skulkd")
    for key in json.loads(ANSWERS.read_text(encoding="utf-8")):
        method, path = key.split()
        node.on(method, path.partition("?")[0], answer)
    node.start()
    try:
        save_context(short_home, node.url)
        yield node
    finally:
        node.stop()


def printed(command: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    main(shlex.split(command)[1:])
    return terminal.getvalue().splitlines()


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.name)
def test_examples_of_a_page_show_what_their_commands_print(
    page: Path, cluster: StockNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    Path("skulk.yaml").write_text("tracing: {retention_days: 3}\n", encoding="utf-8")
    for typed in examples(page.read_text(encoding="utf-8")):
        lines = printed(typed.command, monkeypatch)
        lines = [line.replace(cluster.url, "http://kite1:52415") for line in lines]
        missing = first_difference(typed.output, lines)
        assert not missing, f"{typed.command} does not print\n{missing}\nbut\n" + "\n".join(lines)


def test_there_are_examples_to_check() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    assert len(examples(runbook)) > 12


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_output_is_shown_below_its_command(page: Path) -> None:
    """Blocks of other kinds would be outputs that nothing compares."""
    kinds = set(_FENCE.findall(page.read_text(encoding="utf-8")))
    assert page.name in WITH_DRAWINGS or kinds <= INPUT


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        (["kite1  ok  1.5s"], ["kite1 ok     12m3s"], ""),
        (["task 4be0 took 3 s"], ["task 91aa took 12 s"], ""),
        (["free 20.0GiB"], ["free 7.5 MiB"], ""),
        (["at 2026-11-18T02:39:37"], ["at 2027-01-02T03:04:05.678Z"], ""),
        (["kite1  ok"], ["kite1  well"], "kite1  ok"),
        (["kite1  ok"], ["kite2  ok"], "kite1  ok"),
        (["free 20.0GiB"], ["free 20"], "free 20.0GiB"),
        (["a", "b"], ["a"], "b"),
        (["a"], ["a", "b"], "(not shown) b"),
        (["a", "…"], ["a", "b", "c"], ""),
        (["a", "…", "d"], ["a", "b", "c"], "d"),
        (["wrote …/ca.pem"], ["wrote /home/ops/ca.pem"], ""),
        (["wrote …/ca.pem"], ["wrote /home/ops/ca.key"], "wrote …/ca.pem"),
    ],
)
def test_an_output_that_drifts_is_noticed(
    shown: list[str], printed: list[str], missing: str
) -> None:
    assert first_difference(tuple(shown), printed) == missing


def test_an_example_ends_at_the_next_command() -> None:
    page = "```console\n$ a \\\n  -b\nx\n  y\n$ c   # why\n```\n"
    assert examples(page) == [Typed("", "a   -b", ("x", "  y"))]


def templates(root: Path) -> Iterator[str]:
    """Every text in the code, with ¤ in place of what is filled in."""
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.JoinedStr(values=parts):
                    yield "".join(
                        str(part.value) if isinstance(part, ast.Constant) else "¤" for part in parts
                    )
                case ast.Constant(value=str() as text):
                    yield text


def messages(page: str) -> Iterator[str]:
    """The messages, causes and states that the tables of a page explain."""
    for table in _TABLE.findall(page):
        header, _, *rows = table.splitlines()
        if header.split("|")[1].strip() in EXPLAINED:
            for row in rows:
                yield from _SPAN.findall(row.split("|")[1])


@functools.cache
def texts_of_the_code() -> str:
    return "\n".join(text for room in ("skulkd", "skulkctl") for text in templates(ROOT / room))


def in_the_code(message: str) -> bool:
    """Whether a text of the code can give this message, whatever names and numbers it has."""
    parts = [part.strip() for part in _FILLED_IN.split(message) if re.search(r"\w", part)]
    return bool(re.search(".*".join(map(re.escape, parts)), texts_of_the_code()))


def test_messages_that_tables_explain_are_in_the_code() -> None:
    pages = [page for page in PAGES if page.name not in WITH_DRAWINGS]
    found = {(page.name, text) for page in pages for text in messages(page.read_text("utf-8"))}
    assert len(found) > 40
    assert [one for one in sorted(found) if not in_the_code(one[1])] == []


def test_a_message_that_the_code_does_not_have_is_noticed() -> None:
    assert in_the_code("no Thunderbolt cable joins kite7 and kite8")
    assert not in_the_code("no Thunderbolt cable connects kite7 and kite8")
