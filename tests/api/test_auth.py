"""The access decision as a table."""

from __future__ import annotations

import pytest

from skulkd.api.auth import (
    FOREIGN_HOST,
    FOREIGN_ORIGIN,
    NO_TOKEN,
    WRONG_TOKEN,
    Policy,
    bearer_token,
    decide,
    is_loopback,
    own_names,
    secret_matches,
)
from skulkd.api.callers import CLUSTER_SECRET, LOCAL

SECRET = "correct-horse-battery"
RIGHT = f"Bearer {SECRET}"
HERE = "127.0.0.1:52415"
OPEN = Policy(SECRET, own_names("kite1.lan", "Big Kite"))
CLOSED = Policy(SECRET, own_names("kite1.lan"), token_on_loopback=True)
CORS = Policy(SECRET, own_names("kite1"), cors_origins=frozenset({"https://ops.example"}))


@pytest.mark.parametrize(
    ("peer", "authorization", "host", "origin", "policy", "expected"),
    [
        pytest.param("127.0.0.1", None, HERE, None, OPEN, None, id="loopback needs no token"),
        pytest.param("127.8.9.1", None, HERE, None, OPEN, None, id="all of 127/8"),
        pytest.param("::1", None, "[::1]:52415", None, OPEN, None, id="loopback v6"),
        pytest.param("::ffff:127.0.0.1", None, HERE, None, OPEN, None, id="mapped loopback"),
        pytest.param("::ffff:10.0.0.9", None, HERE, None, OPEN, NO_TOKEN, id="mapped elsewhere"),
        pytest.param("10.0.0.9", None, HERE, None, OPEN, NO_TOKEN, id="elsewhere"),
        pytest.param("fe80::1%eth0", None, HERE, None, OPEN, NO_TOKEN, id="link local"),
        pytest.param(None, None, HERE, None, OPEN, NO_TOKEN, id="unknown peer"),
        pytest.param("10.0.0.9", RIGHT, HERE, None, OPEN, None, id="elsewhere with token"),
        pytest.param("10.0.0.9", RIGHT, "any.name", "https://x", OPEN, None, id="token is enough"),
        pytest.param("10.0.0.9", "Bearer no", HERE, None, OPEN, WRONG_TOKEN, id="wrong token"),
        pytest.param("10.0.0.9", SECRET, HERE, None, OPEN, WRONG_TOKEN, id="no scheme"),
        pytest.param("10.0.0.9", f"Basic {SECRET}", HERE, None, OPEN, WRONG_TOKEN, id="scheme"),
        pytest.param("10.0.0.9", "Bearer ", HERE, None, OPEN, WRONG_TOKEN, id="empty token"),
        pytest.param("127.0.0.1", None, HERE, None, CLOSED, NO_TOKEN, id="closed loopback"),
        pytest.param("127.0.0.1", RIGHT, HERE, None, CLOSED, None, id="closed, with token"),
        pytest.param("127.0.0.1", "Bearer x", HERE, None, OPEN, None, id="needless token"),
        pytest.param("127.0.0.1", None, "localhost:1", None, OPEN, None, id="localhost"),
        pytest.param("127.0.0.1", None, "KITE1.lan.", None, OPEN, None, id="own host name"),
        pytest.param("127.0.0.1", None, "kite1.local:9", None, OPEN, None, id="own .local name"),
        pytest.param("127.0.0.1", None, None, None, OPEN, None, id="no host header"),
        pytest.param("127.0.0.1", None, "evil.example", None, OPEN, FOREIGN_HOST, id="rebinding"),
        pytest.param("127.0.0.1", None, "127.0.0.1.evil.x", None, OPEN, FOREIGN_HOST, id="prefix"),
        pytest.param("127.0.0.1", None, "[::1", None, OPEN, FOREIGN_HOST, id="broken host"),
        pytest.param("127.0.0.1", None, HERE, f"http://{HERE}", OPEN, None, id="same origin"),
        pytest.param(
            "127.0.0.1", None, HERE, "http://127.0.0.1:9999", OPEN, FOREIGN_ORIGIN, id="other port"
        ),
        pytest.param("127.0.0.1", None, HERE, "null", OPEN, FOREIGN_ORIGIN, id="opaque origin"),
        pytest.param("127.0.0.1", None, HERE, "http://[", OPEN, FOREIGN_ORIGIN, id="broken"),
        pytest.param(
            "127.0.0.1", None, HERE, "https://evil.example", CORS, FOREIGN_ORIGIN, id="foreign"
        ),
        pytest.param("127.0.0.1", None, HERE, "https://ops.example", CORS, None, id="configured"),
    ],
)
def test_a_request_is_decided_by_address_token_host_and_origin(
    peer: str | None,
    authorization: str | None,
    host: str | None,
    origin: str | None,
    policy: Policy,
    expected: object,
) -> None:
    found = decide(peer, authorization, host, origin, policy)
    assert found in ((LOCAL, CLUSTER_SECRET) if expected is None else (expected,))


def test_an_empty_secret_never_matches() -> None:
    assert not secret_matches(bearer_token("Bearer "), "")


def test_the_scheme_is_not_case_sensitive_but_the_token_is() -> None:
    assert secret_matches(bearer_token(f"bearer {SECRET}"), SECRET)
    assert not secret_matches(bearer_token(f"Bearer {SECRET.upper()}"), SECRET)


@pytest.mark.parametrize("text", ["", "localhost", "example.org", "127.0.0.1.x", "0.0.0.0"])
def test_only_address_literals_of_this_machine_are_loopback(text: str) -> None:
    assert not is_loopback(text)
