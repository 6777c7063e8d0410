"""skulkctl as a real process: pipes, signals, terminals, start-up cost, crashes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skulkctl.cli.command import Entry
from skulkctl.main import main
from skulkd import __version__
from tests.cli.conftest import Cli
from tests.cli.stock import HANG, KITE1, KITE2, StockNode
from tests.daemon_process import wait_until
from tests.skulkctl_process import start_skulkctl


def on_terminal(
    *arguments: str, typed: str = "", environ: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run with a terminal on all three streams; exit code and everything it showed."""
    leader, follower = pty.openpty()
    env = {**os.environ, **(environ or {})}
    child = start_skulkctl(*arguments, stdin=follower, stdout=follower, stderr=follower, env=env)
    os.close(follower)
    os.write(leader, typed.encode())
    shown = b""
    # Reading fails, instead of ending, when the last user of the terminal has gone.
    with contextlib.suppress(OSError):
        while chunk := os.read(leader, 4096):
            shown += chunk
    os.close(leader)
    return child.wait(300), shown.decode().replace("\r\n", "\n")


def test_version_is_one_line(process: Cli) -> None:
    assert process("--version") == (0, f"skulkctl {__version__}\n", "")


def test_help_shows_every_command_without_importing_them(home: Path) -> None:
    code = (
        "import sys; from skulkctl.main import main; main(['--help']);"
        "print([m for m in sys.modules if m.startswith('skulkctl.commands.')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search(r"^  doctor +Run the health checks\.$", shown.stdout, re.MULTILINE)
    assert shown.stdout.endswith("[]\n")


def test_status_as_json_imports_only_what_a_request_needs(stock: StockNode) -> None:
    code = (
        "import sys; from skulkctl.main import main; code = main(['status', '-o', 'json']);"
        "heavy = {'httpx', 'pydantic', 'rich', 'yaml', 'textual', 'asyncio'} & set(sys.modules);"
        "print(code, sorted(heavy), file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout)["kind"] == "Status"
    assert shown.stderr.splitlines()[-1] == "8 ['httpx', 'pydantic']", "one node is silent"


def test_no_arguments_show_help_on_stderr_and_exit_2(process: Cli) -> None:
    result = process()
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: skulkctl [OPTIONS] COMMAND [ARGS]...\n")


def test_no_daemon_is_exit_5_with_the_address_and_the_command(process: Cli) -> None:
    assert process("status", "--endpoint", "127.0.0.1:1") == (
        5,
        "",
        "error: no daemon reachable\n"
        "  http://127.0.0.1:1: connection refused\n"
        "hint: start one:  skulkd run --listen 127.0.0.1:1\n"
        "hint: or use another:  skulkctl --endpoint HOST:PORT ...\n",
    )


@pytest.mark.parametrize(
    "arguments", [("--help",), ("nodes", "-o", "json"), ("nodes", "--help"), ("help", "output")]
)
def test_a_closed_pipe_ends_quietly(stock: StockNode, arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    child = start_skulkctl(*arguments, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    _, said = child.communicate(timeout=600)
    assert b"Traceback" not in said
    assert b"Broken pipe" not in said
    assert b"error" not in said
    assert child.returncode == (8 if arguments == ("nodes", "-o", "json") else 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("help", "output"), ("--help",), ("--version",)])
def test_a_full_disk_is_an_error(home: Path, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        child = start_skulkctl(*arguments, stdout=full, stderr=subprocess.PIPE)
        _, said = child.communicate(timeout=600)
    assert child.returncode == 1
    assert said == b"error: cannot write the output\n  No space left on device\n"


def test_ctrl_c_is_exit_130_without_a_traceback(stock: StockNode) -> None:
    stock.on("GET", "/state", HANG)
    child = start_skulkctl("nodes", stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    wait_until(lambda: stock.seen, "the request")
    child.send_signal(signal.SIGINT)
    out, said = child.communicate(timeout=600)
    assert (child.returncode, out, said) == (130, b"", b"warning: interrupted\n")


def test_ctrl_c_after_a_change_was_sent_says_that_it_may_happen(stock: StockNode) -> None:
    stock.on("POST", "/admin/restart", HANG)
    child = start_skulkctl("restart", "kite2", "--yes", stderr=subprocess.PIPE)
    wait_until(lambda: stock.seen and stock.seen[-1].method == "POST", "the request")
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=600)
    assert child.returncode == 130
    assert said == b"warning: interrupted; the change may still be carried out\n"


def test_ctrl_c_while_waiting_says_what_continues(stock: StockNode) -> None:
    stock.on("POST", "/admin/restart", {"status": "restart_sent", "node_id": KITE2})
    child = start_skulkctl("restart", "kite2", "--yes", "--wait", stderr=subprocess.PIPE)
    wait_until(lambda: [seen.method for seen in stock.seen][-2:] == ["POST", "GET"], "the wait")
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=600)
    assert child.returncode == 130
    assert said.endswith(b"warning: interrupted; kite2 continues restarting\n")


def test_a_terminal_gets_colour_unless_it_does_not_want_it(stock: StockNode) -> None:
    arguments = ("nodes", "--columns", "name,health")
    code, shown = on_terminal(*arguments)
    assert code == 8
    assert "kite1  \x1b[32m● ok\x1b[0m\n" in shown
    assert "\x1b[31m✖ NO ANSWER\x1b[0m" in shown
    for refused in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_terminal(*arguments, environ=refused)[1]
    assert "\x1b" not in on_terminal(*arguments, "--no-color")[1]


def test_a_pipe_gets_colour_only_when_asked(stock: StockNode, process: Cli) -> None:
    assert "\x1b" not in process("nodes").out
    assert "\x1b[32mok\x1b[0m" in process("nodes", "--color", "always").out


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 9), ("\n", 9), ("\x04", 9)])
def test_a_moderate_question_takes_yes_for_yes_only(
    stock: StockNode, typed: str, code: int
) -> None:
    stock.on("POST", "/admin/restart", {"status": "restart_sent", "node_id": KITE2})
    ended, shown = on_terminal("restart", "kite2", typed=typed)
    assert ended == code
    assert "continue? [y/N] " in shown
    assert ("POST" in [seen.method for seen in stock.seen]) == (code == 0)


@pytest.mark.parametrize(("typed", "code"), [("kite1\n", 0), ("y\n", 9), ("kite\n", 9)])
def test_a_severe_question_wants_the_name(stock: StockNode, typed: str, code: int) -> None:
    stock.on("POST", "/admin/restart", {"status": "restarting", "node_id": KITE1})
    ended, shown = on_terminal("restart", "kite1", typed=typed)
    assert ended == code
    assert "type kite1 to continue: " in shown


def test_questions_are_asked_on_stderr_and_the_answer_is_data(stock: StockNode) -> None:
    stock.on("POST", "/admin/restart", {"status": "restart_sent", "node_id": KITE2})
    leader, follower = pty.openpty()
    child = start_skulkctl(
        "restart", "kite2", stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.close(follower)
    os.write(leader, b"y\n")
    out, said = child.communicate(timeout=600)
    os.close(leader)
    assert out == f"restarting kite2 ({KITE2})\n".encode()
    assert b"continue? [y/N] " in said


def test_data_can_come_from_stdin(stock: StockNode, process: Cli) -> None:
    stock.on("PUT", "/v1/tracing", {"enabled": True})
    assert process("api", "PUT", "/v1/tracing", "-d", "-", stdin='{"enabled": true}').code == 0
    assert stock.seen[-1].body == b'{"enabled": true}'


def test_a_narrow_locale_shows_escapes_and_does_not_crash(
    stock: StockNode, process: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    state = {"lastSeen": {"n1": "x"}, "nodeIdentities": {"n1": {"friendlyName": "füchsin"}}}
    stock.on("GET", "/state", state)
    assert process("nodes", "-q").out == "f\\xfcchsin\n"


CRASHING = {"crash": Entry("tests.cli.crashing", "Fail.")}


def test_a_crash_leaves_a_report_and_no_traceback(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["crash"], CRASHING) == 1
    said = capsys.readouterr().err
    (report,) = (home / "crashes").iterdir()
    assert said == (
        "error: skulkctl crashed; this is a bug\n"
        "  ZeroDivisionError: integer division or modulo by zero\n"
        f"  the crash report is in {report}\n"
        "hint: print the traceback:  add -v\n"
    )
    assert "Traceback" in report.read_text()
    assert report.stat().st_mode & 0o777 == 0o600


def test_a_crash_with_verbose_shows_the_traceback(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["crash", "-v"], CRASHING) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_crash_report_that_cannot_be_written_does_not_hide_the_crash(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "crashes").write_text("in the way")
    assert main(["crash"], CRASHING) == 1
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert "the crash report could not be written" in said
