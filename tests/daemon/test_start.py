"""Starting the daemon: what it says, and how it refuses to start half-configured."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from skulkd import __version__
from tests.daemon_process import ROOT, StartDaemon, daemon_environ


def run_skulkd(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "skulkd", *arguments],
        cwd=home,
        env=daemon_environ(home),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_version_goes_to_stdout(tmp_path: Path) -> None:
    run = run_skulkd(tmp_path, "--version")
    assert (run.returncode, run.stdout, run.stderr) == (0, f"skulkd {__version__}\n", "")


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help")])
def test_help_has_examples(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    run = run_skulkd(tmp_path, *arguments)
    assert run.returncode == 0
    assert "skulkd run --listen 0.0.0.0:52415 --name kite1" in run.stdout


@pytest.mark.parametrize("arguments", [("run", "--nope"), ("fly",), ("run", "--api-port", "x")])
def test_wrong_usage_exits_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    run = run_skulkd(tmp_path, *arguments)
    assert run.returncode == 2
    assert run.stdout == ""


def test_a_base_install_is_told_which_extra_is_missing(tmp_path: Path) -> None:
    """Everything that is installed here can be imported, but what the extra brings."""
    missing = ("aiohttp", "psutil", "prometheus_client", "zenoh", "mlx", "mlx_lm")
    site = tmp_path / "site"
    site.mkdir()
    for entry in Path(typer.__file__).parents[1].iterdir():
        if entry.name not in missing:
            (site / entry.name).symlink_to(entry)
    environ = daemon_environ(tmp_path, {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"})
    run = subprocess.run(
        [sys.executable, "-S", "-m", "skulkd", "run"],
        env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert run.returncode == 1
    assert f"not installed: {', '.join(missing)}\n" in run.stderr
    assert "pip install 'skulk-toolkit[node]'" in run.stderr
    assert "Traceback" not in run.stderr


def test_the_ready_line_tells_version_id_name_and_address(daemon: StartDaemon) -> None:
    process = daemon("--name", "big kite", fresh=True)
    [line] = [line for line in process.stderr if "listening on" in line]
    assert re.search(
        rf"INFO skulkd {re.escape(__version__)} node-[0-9a-f]{{16}} \(big kite\) "
        r"listening on http://127\.0\.0\.1:\d+$",
        line,
    )
    assert process.stdout == []


def test_the_secret_is_created_once_for_the_owner_only(daemon: StartDaemon) -> None:
    first = daemon()
    file = first.home / "cluster.secret"
    secret = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert first.stop() == 0
    daemon(home=first.home)
    assert file.read_text() == secret
    assert secret.strip() not in first.said()


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("localhost:0", "http://localhost:"),
        ("[::1]:0", "http://[::1]:"),
    ],
)
def test_every_spelling_of_this_machine_can_be_listened_on(
    daemon: StartDaemon, listen: str, url: str
) -> None:
    if "::1" in listen and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    process = daemon(listen=listen)
    assert process.url.startswith(url)
    assert process.get("/node_id") == process.node_id


def test_the_api_port_flag_changes_the_port_only(daemon: StartDaemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = daemon("--api-port", str(port), listen=None, config="api: {listen: '127.0.0.1:1'}")
    assert process.url == f"http://127.0.0.1:{port}"


def test_a_port_that_is_taken_names_its_holder_and_exits_75(daemon: StartDaemon) -> None:
    first = daemon("--name", "first", fresh=True)
    second = daemon(listen=f"127.0.0.1:{first.port}", wait=False)
    assert second.wait_exit() == 75
    assert f"port {first.port} is taken" in second.said()
    assert f"pid {first.pid}" in second.said()
    assert "--name first" in second.said()
    assert "--listen" in second.said()
    assert first.get("/node_id") == first.node_id


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"tracing:\n\tretention_days: 1\n", ["skulk.yaml:2", "tab"], id="tabs"),
        pytest.param(b"node: {name: \xff\xfe}\n", ["skulk.yaml", "UTF-8"], id="not utf-8"),
        pytest.param(
            b"a: &a [x,x,x,x,x,x,x,x]\n"
            + b"".join(b"%c: &%c [%s]\n" % (i, i, b",".join([b"*%c" % (i - 1)] * 8))
                       for i in b"bcdefghij"),
            ["skulk.yaml"],
            id="bomb",
        ),
        pytest.param(
            b"tracing: {retention_days: x}\ntraicng: {}\n",
            ["skulk.yaml:1: tracing.retention_days", "skulk.yaml:2", "did you mean tracing"],
            id="every problem at once",
        ),
    ],
)  # fmt: skip
def test_bad_settings_are_named_and_exit_78(
    daemon: StartDaemon, tmp_path: Path, content: bytes, words: list[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "skulk.yaml").write_bytes(content)
    process = daemon(home=home, wait=False)
    assert process.wait_exit() == 78
    for word in words:
        assert word in process.said()
    assert "Traceback" not in process.said()
    assert not (home / "cluster.secret").exists()


@pytest.mark.parametrize("listen", ["nowhere", "::1:5"])
def test_an_impossible_listen_address_exits_78(daemon: StartDaemon, listen: str) -> None:
    process = daemon(listen=listen, wait=False)
    assert process.wait_exit() == 78
    assert "--listen" in process.said()


def test_an_address_of_another_machine_exits_1(daemon: StartDaemon) -> None:
    process = daemon(listen="192.0.2.77:0", wait=False)
    assert process.wait_exit() == 1
    assert "cannot listen on 192.0.2.77:0" in process.said()


def test_a_home_that_cannot_be_written_is_told_without_a_traceback(
    daemon: StartDaemon, tmp_path: Path
) -> None:
    """Below a regular file nothing can be created, not even by root."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    process = daemon(environ={"SKULK_HOME": str(blocker / "home")}, wait=False)
    assert process.wait_exit() == 78
    assert "cluster secret" in process.said()
    assert "SKULK_HOME" in process.said()
    assert "Traceback" not in process.said()


def test_a_low_limit_of_open_files_is_raised(daemon: StartDaemon) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        process = daemon(wait=False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    process.wait_ready()
    limits = Path(f"/proc/{process.pid}/limits")
    if not limits.exists():
        pytest.skip("this system does not show the limits of a process")
    [line] = [line for line in limits.read_text().splitlines() if line.startswith("Max open")]
    assert line.split()[3] == str(min(65_535, hard))


def test_json_lines_go_to_stdout_when_logging_is_enabled(daemon: StartDaemon) -> None:
    process = daemon(config="logging: {enabled: true}\n")
    process.get("/node_id")
    assert process.stop() == 0
    lines = [json.loads(line) for line in process.stdout]
    [ready] = [line for line in lines if "listening on" in line["msg"]]
    assert list(ready) == [
        "ts", "level", "node_id", "component", "module", "function", "line", "msg",
    ]  # fmt: skip
    assert ready["node_id"] == socket.gethostname()
    assert ready["component"] == "node"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", ready["ts"])
    assert any("listening on" in line for line in process.stderr)


def test_verbose_lines_carry_request_id_and_origin(daemon: StartDaemon) -> None:
    process = daemon("-v")
    process.get("/node_id")
    assert process.stop() == 0
    [line] = [line for line in process.stderr if "GET /node_id" in line]
    assert re.search(r"DEBUG skulkd\.api\.middleware:\w+:\d+ GET /node_id 200 .*request_id=", line)


def test_tracing_configured_on_is_an_event_and_a_state(daemon: StartDaemon) -> None:
    process = daemon(environ={"SKULK_TRACING_ENABLED": "true"})
    assert process.get("/state")["tracingEnabled"] is True
    assert {"enabled"} < process.get("/events")[0]["TracingStateChanged"].keys()
    assert process.get("/v1/diagnostics/node")["runtime"]["tracingEnabled"] is True
