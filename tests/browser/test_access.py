"""Who may open the served application: addresses, hosts, origins and the token. Pure."""

from __future__ import annotations

import sys

import pytest

from skulkctl.errors import CliError, Refused, UsageMistake
from skulkctl.web.access import Access, Address, needed_token, parse_address
from skulkctl.web.command import _server
from skulkctl.web.pages import login_page, refusal_page, terminal_page
from tests.skulkctl_process import skulkctl

LOCAL = Access(Address("127.0.0.1", 8000))
ANYWHERE = Access(Address("0.0.0.0", 8000), frozenset({"kite1"}), "token", "session")
OWN = {"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:8000"}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (None, Address("127.0.0.1", 52480)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        (":8080", Address("127.0.0.1", 8080)),
        ("kite1", Address("kite1", 52480)),
        ("[::1]:8080", Address("::1", 8080)),
        ("::1", Address("::1", 52480)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
    ],
)
def test_addresses(typed: str | None, expected: Address) -> None:
    assert parse_address(typed) == expected


@pytest.mark.parametrize(
    "typed", ["http://x:1", "x:99999", "x:y", "a/b", "me@x:1", ":", "x:-1", "[::1"]
)
def test_what_is_no_address_is_named(typed: str) -> None:
    with pytest.raises(UsageMistake, match="is not an address") as raised:
        parse_address(typed)
    assert typed in raised.value.what


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("192.168.1.2", False), ("kite1", False)],
)  # fmt: skip
def test_only_loopback_needs_no_token(host: str, loopback: bool) -> None:
    address = Address(host)
    assert address.is_loopback is loopback
    if loopback:
        assert needed_token(address, None) is None
    else:
        assert needed_token(address, "secret") == "secret"
        with pytest.raises(Refused, match="needs the cluster's token"):
            needed_token(address, None)


@pytest.mark.parametrize(
    ("access", "path", "headers"),
    [
        (LOCAL, "/ws", OWN),
        (LOCAL, "/", {"Host": "localhost:8000"}),
        (LOCAL, "/", {"Host": "[::1]:8000"}),
        (LOCAL, "/", {"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "cross-site",
                      "Sec-Fetch-Dest": "document"}),
        (ANYWHERE, "/", {"Host": "192.168.1.2:8000"}),
        (ANYWHERE, "/ws", {"Host": "kite1:8000", "Origin": "http://kite1:8000"}),
    ],
)  # fmt: skip
def test_our_own_page_is_let_in(access: Access, path: str, headers: dict[str, str]) -> None:
    assert access.problem(path, headers) is None


@pytest.mark.parametrize(
    ("access", "path", "headers"),
    [
        (LOCAL, "/", {}),
        (LOCAL, "/", {"Host": "rebound.example:8000"}),
        (LOCAL, "/", {"Host": "rebound.example"}),
        (LOCAL, "/", {"Host": "192.168.1.2:8000"}),
        (LOCAL, "/", {"Host": "127.0.0.1:9000"}),
        (LOCAL, "/", {"Host": "[::1"}),
        (ANYWHERE, "/", {"Host": "rebound.example:8000"}),
        (LOCAL, "/ws", {"Host": "127.0.0.1:8000"}),
        (LOCAL, "/ws", OWN | {"Origin": "null"}),
        (LOCAL, "/ws", OWN | {"Origin": "http://127.0.0.1:9000"}),
        (LOCAL, "/ws", OWN | {"Origin": "https://127.0.0.1:8000"}),
        (LOCAL, "/login", OWN | {"Origin": "http://evil.example"}),
        (LOCAL, "/", {"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "cross-site",
                      "Sec-Fetch-Dest": "iframe"}),
    ],
)  # fmt: skip
def test_others_are_not(access: Access, path: str, headers: dict[str, str]) -> None:
    assert access.problem(path, headers)


def test_the_token_opens_a_session() -> None:
    assert LOCAL.admits({})
    assert not LOCAL.accepts("")
    assert ANYWHERE.accepts("token")
    assert not ANYWHERE.accepts("tokem")
    assert not ANYWHERE.admits({})
    assert not ANYWHERE.admits({ANYWHERE.cookie: "token"})
    assert ANYWHERE.admits({ANYWHERE.cookie: "session"})


def test_pages_escape_what_they_show() -> None:
    hostile = '"><script>'
    for page in (
        terminal_page(hostile, hostile, "99"), login_page(hostile), refusal_page("x", hostile)
    ):  # fmt: skip
        assert hostile not in page
    assert 'data-font-size="20"' in terminal_page("x", "h", "20")
    assert 'data-font-size="15"' in terminal_page("x", "h", "9999")


def test_without_the_extra_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    monkeypatch.delitem(sys.modules, "textual_serve.app_service", raising=False)
    monkeypatch.delitem(sys.modules, "skulkctl.web.server", raising=False)
    with pytest.raises(CliError, match="not installed") as raised:
        _server()
    assert raised.value.hints == ("pip install 'skulk-toolkit[web]'",)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["127.0.0.1:1"], 2, "127.0.0.1:1 needs --serve"),
        (["--allow-changes"], 2, "--allow-changes needs --serve"),
        (["--serve", "a/b"], 2, "is not an address"),
        (["--serve", "0.0.0.0:0"], 4, "needs the cluster's token"),
        (["--serve", "127.0.0.1:1"], 1, "cannot serve on 127.0.0.1:1"),
    ],
)
def test_a_bad_command_line_serves_nothing(
    tmp_path_factory: pytest.TempPathFactory, arguments: list[str], code: int, said: str
) -> None:
    if said.startswith("cannot serve"):
        import socket

        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = skulkctl("ui", "--serve", f"127.0.0.1:{port}", home=tmp_path_factory.mktemp("h"))
        said = said.replace(":1", f":{port}")
    else:
        done = skulkctl("ui", *arguments, home=tmp_path_factory.mktemp("h"))
    assert done.code == code, done.err
    assert said in done.err
    assert done.out == ""
