"""`skulkctl token` against a real daemon, and what its errors say."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from skulkctl.views.tokens import token_items
from tests.cli.conftest import Cli
from tests.cli.stock import StockNode
from tests.daemon_process import StartDaemon

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
TOKENS_ONLY = "api: {token_on_loopback: true, secret_for_operators: false}\n"


def test_a_token_is_made_used_listed_and_revoked(
    daemon: StartDaemon, home: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = daemon()
    monkeypatch.setenv("SKULK_ENDPOINT", node.url)
    file = home / "ci.token"
    file.write_text(cli("token", "create", "ci", "--scope", "operate", "-q").out)
    made = cli(
        "token", "create", "web", "--scope", "infer,read", "--scope", "read", "--rate", "2/h",
        "--concurrency", "3", "--expires", "90d", "-o", "json",
    )  # fmt: skip
    web = json.loads(made.out)
    assert (web["scopes"], web["rate"], web["concurrency"]) == (["read", "infer"], "2/h", 3)
    assert web["token"].startswith(f"skt_{web['tokenId']}")
    again = cli("token", "create", "web", "--scope", "read")
    assert again.code == 4
    assert "there is a token named web already" in again.err
    assert "skulkctl token revoke web" in again.err

    # From now on only tokens count.
    node.stop()
    (node.home / "skulk.yaml").write_text(TOKENS_ONLY)
    node = daemon(home=node.home)
    monkeypatch.setenv("SKULK_ENDPOINT", node.url)
    monkeypatch.setenv("SKULK_TOKEN", (node.home / "cluster.secret").read_text().strip())
    refused = cli("nodes")
    assert refused.code == 4
    assert "did not accept the token\n  this node does not accept the cluster secret" in refused.err
    monkeypatch.setenv("SKULK_TOKEN", web["token"])
    forbidden = cli("trace", "on")
    assert forbidden.code == 4
    assert "token web lacks the scope operate (it has read, infer)" in forbidden.err
    assert [cli("api", "GET", "/state").code for _ in range(3)] == [0, 0, 4]
    limited = cli("nodes")
    assert limited.code == 4
    assert "token web is limited to 2/h on this node; try again in" in limited.err

    monkeypatch.delenv("SKULK_TOKEN")
    cli("context", "add", "lab", node.url, "--token-file", str(file), "--use")
    monkeypatch.delenv("SKULK_ENDPOINT")
    listed = cli("token", "list", "-o", "json")
    rows = {item["name"]: item for item in json.loads(listed.out)["items"]}
    assert set(rows) == {"ci", "web"}
    assert rows["web"]["lastUsed"] is not None
    assert web["token"] not in listed.out
    assert cli("token", "revoke", "web").code == 9
    assert "would revoke token web" in cli("token", "revoke", "web", "--dry-run").err
    assert cli("token", "revoke", "web", "--yes").out == "revoked web\n"
    assert cli("token", "revoke", "web", "--yes").code == 3
    monkeypatch.setenv("SKULK_TOKEN", web["token"])
    gone = cli("nodes")
    assert gone.code == 4
    assert "did not accept the token\n  the token was revoked" in gone.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a b", "--scope", "read"), "NAME: must be 1 to 64 letters"),
        (("x", "--scope", "reed"), "--scope: reed is not a scope"),
        (("x", "--scope", "read,"), "--scope: '' is not a scope"),
        (("x", "--scope", "read", "--rate", "5/day"), "--rate: must be N/s, N/min or N/h"),
        (("x", "--scope", "read", "--expires", "soon"), "--expires: 'soon' is not a duration"),
        (("x", "--scope", "read", "--expires", "4000d"), "--expires: 4000d is more than ten years"),
        (("x",), "missing option '--scope'"),
    ],
)
def test_a_command_line_that_makes_no_sense_sends_nothing(
    cli: Cli, stock: StockNode, arguments: tuple[str, ...], said: str
) -> None:
    result = cli("token", "create", *arguments)
    assert result.code == 2
    assert said in result.err
    assert stock.seen == []


def test_a_server_without_tokens_says_so(cli: Cli, stock: StockNode) -> None:
    result = cli("token", "list")
    assert result.code == 4
    assert "this server cannot do that" in result.err


def test_two_tokens_of_one_name_are_revoked_by_id(cli: Cli, stock: StockNode) -> None:
    both = [
        {"tokenId": token_id, "name": "ci", "scopes": ["read"], "created": NOW.isoformat()}
        for token_id in ("aa", "bb")
    ]
    stock.on("GET", "/v1/cluster/tokens", {"tokens": both})
    result = cli("token", "revoke", "ci", "--yes")
    assert result.code == 4
    assert "2 tokens are named ci\n  ids: aa, bb" in result.err
    assert "would revoke token ci" in cli("token", "revoke", "bb", "--dry-run").err


def test_times_are_told_from_now() -> None:
    token = {
        "created": (NOW - timedelta(days=3)).isoformat(),
        "expires": (NOW + timedelta(hours=2)).isoformat(),
    }
    lasting = {"created": NOW.isoformat(), "expires": None, "lastUsed": NOW.isoformat()}
    expired = {**token, "expired": True}
    rows = token_items({"tokens": [token, lasting, expired]}, NOW)
    assert [row["expiresText"] for row in rows] == ["in 2h", "never", "expired"]
    assert [row["createdText"] for row in rows] == ["3d ago", "0.0s ago", "3d ago"]
    assert [row["lastUsedText"] for row in rows] == ["-", "0.0s ago", "-"]
