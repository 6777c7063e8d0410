"""skulkctl against a real daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.completing import candidates
from tests.cli.conftest import Cli
from tests.daemon_process import DaemonProcess, StartDaemon


@pytest.fixture
def live(
    shared_daemon: DaemonProcess, home: Path, monkeypatch: pytest.MonkeyPatch
) -> DaemonProcess:
    """The shared daemon, asked by default."""
    monkeypatch.setenv("SKULK_ENDPOINT", shared_daemon.url)
    return shared_daemon


def test_status_and_nodes_show_the_real_machine(live: DaemonProcess, cli: Cli) -> None:
    status = cli("status", "--check", "-o", "json")
    assert status.code in (0, 7)
    document = json.loads(status.out)
    assert (document["master"], document["endpoint"]) == ("kite1", live.url)
    nodes = cli("nodes", "-o", "json")
    assert nodes.code == 0
    (node,) = json.loads(nodes.out)["items"]
    assert (node["name"], node["id"], node["role"]) == ("kite1", live.node_id, "master")
    assert node["memory"]["totalBytes"] > node["memory"]["availableBytes"] > 0


def test_doctor_runs_every_check_against_our_own_daemon(live: DaemonProcess, cli: Cli) -> None:
    result = cli("doctor", "--expect-nodes", "1", "-o", "json")
    checks = {item["check"]: item["result"] for item in json.loads(result.out)["items"]}
    for name in ("daemon", "ready", "version", "cluster-size", "answers", "config", "clock"):
        assert checks[name] == "ok", name
    assert cli("doctor", "--expect-nodes", "2").code == 7


def test_diagnose_by_prefix_shows_the_daemon_process(live: DaemonProcess, cli: Cli) -> None:
    document = json.loads(cli("diagnose", live.node_id[:12], "-o", "json").out)
    assert live.pid in [process["pid"] for process in document["processes"]]
    assert "  name          kite1\n" in cli("diagnose").out


def test_config_show_origin_names_the_flag(live: DaemonProcess, cli: Cli) -> None:
    result = cli("config", "show", "--origin", "--no-headers")
    rows = {line.split()[0]: line.split()[1:] for line in result.out.splitlines()}
    assert rows["node.name"] == ["kite1", "--name"]
    assert rows["tracing.retention_days"] == ["3", "default"]
    assert result.err == ""


def test_api_shows_what_the_daemon_says(live: DaemonProcess, cli: Cli) -> None:
    assert cli("api", "GET", "/node_id").out == f'"{live.node_id}"'
    missing = cli("api", "GET", "/no/such/thing", "-v")
    assert missing.code == 3
    assert "  request id: " in missing.err
    assert "none given" not in missing.err
    assert cli("api", "PUT", "/config", "-d", "{bad").code == 4


def test_nodes_are_completed_from_the_daemon(live: DaemonProcess) -> None:
    assert candidates("restart", "") == ["kite1"]


def test_config_set_is_written_kept_and_taken_back(
    daemon: StartDaemon, home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = (
        "# lab\nlogging:  # all nodes\n  # not yet\n  enabled: false\n"
        "  ingest_url:   http://logs:9428/x   # rack 2\n# end\n"
    )
    node = daemon("--name", "kite7", config=config)
    monkeypatch.setenv("SKULK_ENDPOINT", node.url)
    assert cli("config", "set", "tracing.retention_days", "9").code == 0
    with_tracing = config.replace("# end", "tracing:\n  retention_days: 9\n# end")
    assert (node.home / "skulk.yaml").read_text() == with_tracing
    assert cli("config", "validate", str(node.home / "skulk.yaml")).code == 0
    # The retention of traces is read again each time; what logs are sent where is not.
    assert "restart needed" not in cli("config", "show").out
    assert cli("config", "set", "logging.ingest_url", "http://other:1/y").code == 0
    other = with_tracing.replace("logs:9428/x", "other:1/y")
    assert (node.home / "skulk.yaml").read_text() == other
    shown = cli("config", "show")
    rows = {line.split()[0]: line.split(None, 1)[1] for line in shown.out.splitlines()}
    assert rows["logging.ingest_url"].split(None, 2) == [
        "http://logs:9428/x",
        "http://other:1/y",
        "restart needed",
    ]
    assert rows["tracing.retention_days"].split() == ["9", "-", "-"]
    assert "hint: apply the configured values:  skulkctl restart kite7" in shown.err
    document = json.loads(cli("config", "show", "-o", "json").out)
    pending = [item for item in document["items"] if item["restartNeeded"]]
    assert [(item["value"], item["pending"]["value"]) for item in pending] == [
        ("http://logs:9428/x", "http://other:1/y")
    ]
    # A value that was a default at the start does not come from the line written since.
    assert cli("config", "set", "runtime.queue", "7").code == 0
    document = json.loads(cli("config", "show", "-o", "json").out)
    (queue,) = [item for item in document["items"] if item["key"] == "runtime.queue"]
    assert queue["origin"] == "default"
    assert queue["pending"]["value"] == 7
    assert queue["pending"]["origin"].startswith(f"{node.home}/skulk.yaml:")
    overridden = cli("config", "set", "node.name", "kite9")
    assert "warning: --name overrides node.name on this node" in overridden.err
    assert "hint:" not in overridden.err
    assert cli("config", "set", "tracing.retention_days", "--unset").code == 0
    added = "runtime:\n  queue: 7\nnode:\n  name: kite9\n# end"
    left = other.replace("tracing:\n  retention_days: 9\n", "").replace("# end", added)
    assert (node.home / "skulk.yaml").read_text() == left


def test_config_show_says_that_tracing_was_switched(
    daemon: StartDaemon, home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKULK_ENDPOINT", daemon().url)

    def tracing() -> tuple[object, ...]:
        items = json.loads(cli("config", "show", "-o", "json").out)["items"]
        (item,) = [item for item in items if item["key"] == "tracing.enabled"]
        return item["value"], item["origin"], item["pending"], item["restartNeeded"]

    assert tracing() == (False, "default", None, False)
    assert cli("trace", "on").code == 0
    configured = {"value": False, "origin": "default"}
    assert tracing() == (True, "skulkctl trace", configured, False)
    assert "restart" not in cli("config", "show").err
    assert cli("trace", "off").code == 0
    assert tracing() == (False, "default", None, False)


def test_restart_wait_comes_back_with_a_new_id(
    daemon: StartDaemon, home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = "127.0.0.1:0"
    node = daemon("--name", "kite7", listen=listen)
    fixed = f"127.0.0.1:{node.port}"
    node.stop()
    node = daemon("--name", "kite7", listen=fixed)
    monkeypatch.setenv("SKULK_ENDPOINT", node.url)
    old = node.node_id
    result = cli("restart", "kite7", "--yes", "--wait", "--timeout", "60s", "-o", "json")
    assert result.code == 0
    document = json.loads(result.out)
    assert document["id"] == old
    assert document["newId"] not in (None, old)


def test_a_daemon_that_wants_a_token_on_loopback_is_satisfied_by_a_token_file(
    daemon: StartDaemon, home: Path, cli: Cli
) -> None:
    node = daemon(config="api:\n  token_on_loopback: true\n")
    secret = node.home / "cluster.secret"
    refused = cli("nodes", "--endpoint", node.url)
    assert refused.code == 4
    assert "requires authentication" in refused.err
    assert secret.read_text().strip() not in refused.err
    cli("context", "add", "lab", node.url, "--token-file", str(secret), "--use")
    assert cli("nodes", "-q").code == 0


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("tracing:\n  retention_days: 3\n", []),
        ("tracing:\n  retention_dyas: 3\n", [("2", "tracing.retention_dyas")]),
        ("logging:\n  enabled: 7\ntracing: x\n", [("2", "logging.enabled"), ("3", "tracing")]),
        ("a:\n\t- b\n", [("2", "-")]),
    ],
)
def test_config_validate_gives_a_row_for_each_problem(
    cli: Cli, tmp_path: Path, text: str, rows: list[tuple[str, str]]
) -> None:
    (tmp_path / "skulk.yaml").write_text(text)
    result = cli("config", "validate", "--columns", "line,key", "--no-headers")
    assert [tuple(line.split()) for line in result.out.splitlines()] == rows
    assert result.code == (7 if rows else 0)


def test_config_validate_of_a_file_that_is_not_there_is_not_found(cli: Cli) -> None:
    assert cli("config", "validate", "nothing.yaml").code == 3
    assert cli("config", "validate").err.startswith("note: there is no configuration file")
