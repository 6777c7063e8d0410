"""skulkctl changes a stock Skulk 1.3.0 node: settings, restarts, protected contexts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, save_context
from tests.cli.stock import KITE1, KITE2, Reply, Seen, StockNode, error_body, recorded


def test_config_show_on_a_stock_node_says_that_origins_are_missing(
    cli: Cli, stock: StockNode
) -> None:
    result = cli("config", "show", "--origin")
    assert result.code == 0
    assert "model_store.staging.staging_keep_recent_gb  40              skulk.yaml\n" in result.out
    assert "hf_token                                    (hidden)        skulk.yaml\n" in result.out
    assert result.err.startswith("note: this server does not report where values come from")


def test_config_set_sends_the_whole_configuration_back(cli: Cli, stock: StockNode) -> None:
    stock.on("PUT", "/config", {"success": True, "message": "Saved.", "requiresRestart": True})
    result = cli("config", "set", "model_store.staging.staging_keep_recent_gb", "10")
    assert result == (
        0,
        "model_store.staging.staging_keep_recent_gb: 40 -> 10.0\n",
        "note: Saved.\nhint: to apply it, run:  skulkctl restart NODE\n",
    )
    sent = json.loads(stock.seen[-1].body)
    expected = recorded("config")["config"]
    expected["model_store"]["staging"]["staging_keep_recent_gb"] = 10.0
    assert sent == {"config": expected}


def test_a_negative_value_may_follow_two_dashes(cli: Cli, stock: StockNode) -> None:
    result = cli("config", "set", "--dry-run", "--", "tracing.retention_days", "-1")
    assert result.out == "tracing.retention_days: - -> -1  (not written)\n"


def test_config_set_dry_run_sends_nothing(cli: Cli, stock: StockNode) -> None:
    result = cli("config", "set", "logging.enabled", "yes", "--dry-run")
    assert result.out == "logging.enabled: false -> true  (not written)\n"
    assert [seen.method for seen in stock.seen] == ["GET"]


def test_config_set_refused_by_the_server_is_exit_4(cli: Cli, stock: StockNode) -> None:
    stock.on("PUT", "/config", Reply(422, error_body("logging: not today", 422)))
    result = cli("config", "set", "logging.enabled", "true")
    assert result.code == 4
    assert "  logging: not today\n" in result.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("logging.enabled",), 2),
        (("logging.enabled", "true", "--unset"), 2),
        (("logging.enable", "true"), 3),
        (("logging.enabled", "maybe"), 4),
        (("hf_token", "hf_secret"), 2),
        (("hf_token", "@/nowhere"), 1),
    ],
)
def test_config_set_that_makes_no_sense_sends_nothing(
    cli: Cli, stock: StockNode, arguments: tuple[str, ...], code: int
) -> None:
    assert cli("config", "set", *arguments).code == code
    assert all(seen.method == "GET" for seen in stock.seen)


def test_a_secret_is_read_from_a_file_and_never_printed(
    cli: Cli, stock: StockNode, home: Path
) -> None:
    stock.on("PUT", "/config", {"success": True, "message": "Saved.", "requiresRestart": False})
    (home / "token").write_text("hf_0123456789\n")
    result = cli("config", "set", "hf_token", f"@{home / 'token'}", "-v")
    assert result.out == "hf_token: (hidden) -> (hidden)\n"
    assert "hf_0123456789" not in result.err
    assert json.loads(stock.seen[-1].body)["config"]["hf_token"] == "hf_0123456789"


def test_restart_of_a_worker_asks_and_without_a_terminal_names_the_flag(
    cli: Cli, stock: StockNode
) -> None:
    result = cli("restart", "kite2")
    assert result.code == 9
    assert result.err.endswith("hint: add  --yes\n")
    assert all(seen.method == "GET" for seen in stock.seen)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((), 9), (("--yes",), 9), (("--confirm", "kite2"), 9), (("--confirm", "kite1"), 0)],
)
def test_restart_of_the_master_needs_its_name(
    cli: Cli, stock: StockNode, arguments: tuple[str, ...], code: int
) -> None:
    stock.on("POST", "/admin/restart", {"status": "restarting", "node_id": KITE1})
    result = cli("restart", "kite1", *arguments)
    assert result.code == code
    posts = [seen.path for seen in stock.seen if seen.method == "POST"]
    assert posts == ([] if code else [f"/admin/restart?node_id={KITE1}"])
    if code:
        assert result.err.endswith("hint: add  --confirm kite1\n")


def test_restart_when_the_master_is_not_known_is_as_careful(cli: Cli, stock: StockNode) -> None:
    del stock.answers[("GET", "/v1/diagnostics/node")]
    assert cli("restart", "kite2", "--yes").err.endswith("hint: add  --confirm kite2\n")


def test_restart_dry_run_tells_the_consequences_and_changes_nothing(
    cli: Cli, stock: StockNode
) -> None:
    result = cli("restart", "kite1", "--dry-run")
    assert (result.code, result.out) == (0, f"would restart kite1 ({KITE1})\n")
    assert "it is the master of 3 nodes" in result.err
    assert all(seen.method == "GET" for seen in stock.seen)


def test_restart_that_is_already_pending_is_refused(cli: Cli, stock: StockNode) -> None:
    pending = {"status": "restart_already_pending", "node_id": KITE2}
    stock.on("POST", "/admin/restart", Reply(409, pending))
    result = cli("restart", "kite2", "--yes")
    assert result.code == 4
    assert result.err == "error: cannot restart kite2\n  restart already pending\n"


def test_restart_wait_returns_when_the_name_has_a_new_id(cli: Cli, stock: StockNode) -> None:
    asked: list[Seen] = []

    def state(seen: Seen) -> object:
        document = recorded("state")
        if asked:
            for part in ("lastSeen", "nodeIdentities"):
                document[part]["12D3KooWZnew"] = document[part].pop(KITE2)
        return document

    def restart(seen: Seen) -> object:
        asked.append(seen)
        return {"status": "restart_sent", "node_id": KITE2}

    stock.on("GET", "/state", state)
    stock.on("POST", "/admin/restart", restart)
    result = cli("restart", "kite2", "--yes", "--wait", "--timeout", "30s")
    assert (result.code, result.out) == (0, f"restarted kite2 ({KITE2}), now 12D3KooWZnew\n")


def test_restart_wait_gives_up_at_its_deadline_with_exit_6(cli: Cli, stock: StockNode) -> None:
    stock.on("POST", "/admin/restart", {"status": "restart_sent", "node_id": KITE2})
    result = cli("restart", "kite2", "--yes", "--wait", "--timeout", "700ms")
    assert result.code == 6
    assert "it may still restart" in result.err


def test_a_protected_context_wants_its_name_for_every_change(
    cli: Cli, stock: StockNode, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKULK_ENDPOINT")
    save_context(home, stock.url, protected=True)
    stock.on("PUT", "/config", {"success": True, "message": "", "requiresRestart": False})
    stock.on("POST", "/admin/restart", {"status": "restart_sent", "node_id": KITE2})
    stock.on("POST", "/x", {})
    stock.on("PUT", "/v1/tracing", lambda seen: json.loads(seen.body))
    stock.on("GET", "/v1/swarm", {"configured": True, "state": "polling"})
    for verb in ("pause", "resume"):
        stock.on("POST", f"/v1/swarm/{verb}", {"configured": True, "state": "paused"})
    changes = [
        ("trace", "on"),
        ("trace", "off"),
        ("swarm", "pause"),
        ("swarm", "resume"),
        ("config", "set", "logging.enabled", "true"),
        ("restart", "kite2"),
        ("api", "POST", "/x"),
    ]
    for change in changes:
        refused = cli(*change, "--yes")
        assert refused.code == 9, change
        assert refused.err.endswith("hint: add  --confirm lab\n")
        assert cli(*change, "--confirm", "lab").code == 0, change
    assert cli("api", "GET", "/node_id").code == 0


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("trace", "on"), "would switch tracing on\n"),
        (("trace", "off"), "would switch tracing off; it is already off\n"),
        (
            ("swarm", "pause"),
            "note: would stop requesting work from the gateway; its state is polling",
        ),
        (
            ("swarm", "resume"),
            "note: would request work from the gateway again; its state is polling",
        ),
    ],
)
def test_a_dry_run_of_a_switch_changes_nothing(
    cli: Cli, stock: StockNode, command: tuple[str, ...], told: str
) -> None:
    stock.on("GET", "/v1/swarm", {"configured": True, "state": "polling"})
    result = cli(*command, "--dry-run")
    assert result.code == 0
    assert told in result.out + result.err
    assert {seen.method for seen in stock.seen} == {"GET"}


def test_an_enrolment_that_cannot_be_used_is_not_called_missing(cli: Cli, stock: StockNode) -> None:
    problem = "MSWARM_SELF_HOSTED_EXPOSURE_POLICY is 'bogus'"
    stock.on("GET", "/v1/swarm", {"configured": False, "problems": [problem]})
    result = cli("swarm", "status")
    assert result.code == 7
    assert result.out == f"gateway node  stopped\nproblem       {problem}\n"
    assert "setup" not in result.err
    stock.on("GET", "/v1/swarm", {"configured": False, "problems": []})
    none = cli("swarm", "status")
    assert (none.code, none.out) == (0, "gateway node  not enrolled\n")
    assert "swarm setup" in none.err


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_node_without_a_gateway_cannot_be_paused(
    cli: Cli, stock: StockNode, verb: str, more: list[str]
) -> None:
    stock.on("GET", "/v1/swarm", {"configured": False, "state": None})
    result = cli("swarm", verb, *more)
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith("error: this node is not enrolled with a gateway\n")
