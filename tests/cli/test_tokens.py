"""`skulkctl token` against a real daemon, and what its errors say."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from skulkctl.tokens.rows import token_page, token_rows
from skulkd.wire.ids import TokenId
from skulkd.wire.tokens import CreatedToken, TokenItem, TokenList
from tests.cli.builders import as_json
from tests.cli.conftest import Cli
from tests.cli.stock import StockNode
from tests.daemon_process import StartDaemon

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
TOKENS_ONLY = "api: {token_on_loopback: true, secret_for_operators: false}\n"


def a_token(token_id: str, created: datetime = NOW, **facts: Any) -> TokenItem:
    return TokenItem(
        token_id=TokenId(token_id), name="ci", scopes=["read"], created=created, **facts
    )


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
    assert "rejected the token\n  this node does not accept the cluster secret" in refused.err
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
    assert "rejected the token\n  the token was revoked" in gone.err


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
    both = [a_token("aa"), a_token("bb")]
    stock.on("GET", "/v1/cluster/tokens", as_json(TokenList(tokens=both)))
    result = cli("token", "revoke", "ci", "--yes")
    assert result.code == 2
    assert "ci matches 2 tokens\n  aa  ci\n  bb  ci\n" in result.err
    assert cli("token", "revoke", "c", "--yes").code == 3
    assert "would revoke token ci" in cli("token", "revoke", "bb", "--dry-run").err


def test_times_are_told_from_now() -> None:
    expires = NOW + timedelta(hours=2)
    tokens = [
        a_token("aa", created=NOW - timedelta(days=3), expires=expires),
        a_token("bb", last_used=NOW),
        a_token("cc", expires=NOW - timedelta(hours=2), expired=True),
    ]
    rows = token_rows(tokens, NOW)
    assert [row["expiresText"] for row in rows] == ["in 2h", "never", "expired"]
    assert [row["createdText"] for row in rows] == ["3d ago", "0.0s ago", "0.0s ago"]
    assert [row["lastUsedText"] for row in rows] == ["-", "0.0s ago", "-"]


def test_a_new_token_is_shown_with_its_limits() -> None:
    facts = {"name": "ci", "scopes": ["read", "infer"], "created": NOW, "token": "skt_aa_x"}
    page = token_page(CreatedToken(token_id=TokenId("aa"), rate="2/h", concurrency=3, **facts))
    assert page == (
        "skt_aa_x\n\n  name     ci\n  scopes   read,infer\n"
        "  limits   rate 2/h, 3 open at once\n  expires  never\n"
    )
    lasting = token_page(CreatedToken(token_id=TokenId("aa"), expires=NOW, **facts))
    assert "limits   none\n  expires  2026-01-02T03:00:00" in lasting
