"""Access through a real daemon: tokens, browser protection, CORS."""

from __future__ import annotations

import contextlib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon_process import DaemonProcess, spawn_daemon

SECRET = "correct-horse-battery-staple"
ORIGIN = "https://ops.example.org"
CONFIG = f"""\
api:
  token_on_loopback: true
  cors_origins: ["{ORIGIN}"]
cluster:
  secret: {SECRET}
"""


def ask(
    daemon: DaemonProcess, path: str, method: str = "GET", **headers: str
) -> tuple[int, Any, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(daemon.url + path, headers=named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A daemon that asks this machine for the secret, too."""
    home = tmp_path_factory.mktemp("closed")
    (home / "skulk.yaml").write_text(CONFIG)
    process = spawn_daemon(home, "-v")
    try:
        process.wait_ready()
        yield process
    finally:
        process.kill()


@pytest.mark.parametrize(
    "path",
    ["/node/identity", "/state", "/config", "/events", "/metrics", "/api/docs", "/readyz", "/nope"],
)
def test_without_the_secret_everything_is_a_401(closed: DaemonProcess, path: str) -> None:
    status, headers, body = ask(closed, path)
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("Unauthorized", 401)


@pytest.mark.parametrize("token", ["", "wrong", SECRET[:-1], f"{SECRET}x", SECRET.upper()])
def test_a_wrong_secret_is_a_401(closed: DaemonProcess, token: str) -> None:
    assert ask(closed, "/state", Authorization=f"Bearer {token}")[0] == 401


def test_an_address_in_a_forwarding_header_opens_nothing(closed: DaemonProcess) -> None:
    assert ask(closed, "/state", X_Forwarded_For="127.0.0.1", Forwarded="for=::1")[0] == 401


def test_the_secret_opens(closed: DaemonProcess) -> None:
    status, _, body = ask(closed, "/node/identity", Authorization=f"Bearer {SECRET}")
    assert (status, json.loads(body)["nodeId"]) == (200, closed.node_id)


def test_health_and_the_id_need_no_secret(closed: DaemonProcess) -> None:
    assert ask(closed, "/healthz")[0] == 200
    # Nodes try each other's addresses with it, before they know whom they are talking to.
    status, _, body = ask(closed, "/node_id")
    assert (status, json.loads(body)) == (200, closed.node_id)


def test_a_configured_origin_may_ask_before_it_sends_the_secret(closed: DaemonProcess) -> None:
    status, headers, _ = ask(
        closed, "/state", "OPTIONS", Origin=ORIGIN, Access_Control_Request_Method="GET"
    )
    assert status == 204
    assert headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "Authorization" in headers["Access-Control-Allow-Headers"]
    assert headers["Vary"] == "Origin"


@pytest.mark.parametrize("path", ["/node_id", "/events", "/nope"])
def test_a_configured_origin_may_read_the_answer(closed: DaemonProcess, path: str) -> None:
    _, headers, _ = ask(closed, path, Origin=ORIGIN, Authorization=f"Bearer {SECRET}")
    assert headers["Access-Control-Allow-Origin"] == ORIGIN


def test_another_origin_gets_no_permission(closed: DaemonProcess) -> None:
    other = "https://evil.example"
    status, headers, _ = ask(
        closed, "/state", "OPTIONS", Origin=other, Access_Control_Request_Method="GET"
    )
    assert status == 401
    assert headers["Access-Control-Allow-Origin"] is None


def test_the_secret_is_nowhere_in_log_or_answers(closed: DaemonProcess) -> None:
    header = f"Bearer {SECRET}"
    ask(closed, f"/nope?token={SECRET}", Authorization=header)
    ask(closed, f"/{SECRET}", Authorization=header)
    for path in ("/config", "/v1/diagnostics/node", "/state", "/events", "/metrics"):
        assert SECRET.encode() not in ask(closed, path, Authorization=header)[2]
    assert "GET /" in closed.said()
    assert SECRET not in closed.said()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example:52415"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:9"}, 200),
        ({"Host": "kite1"}, 200),
        ({"Host": "[::1]"}, 200),
    ],
    ids=str,
)
def test_a_web_page_cannot_use_the_open_loopback(
    shared_daemon: DaemonProcess, headers: dict[str, str], status: int
) -> None:
    got, answered, body = ask(shared_daemon, "/node/identity", **headers)
    assert got == status
    assert answered["Access-Control-Allow-Origin"] is None
    if status == 403:
        assert json.loads(body)["error"]["type"] == "Forbidden"


def test_a_page_of_the_daemon_itself_may_use_it(shared_daemon: DaemonProcess) -> None:
    assert ask(shared_daemon, "/state", Origin=shared_daemon.url)[0] == 200


def test_without_configured_origins_a_preflight_is_a_plain_refusal(
    shared_daemon: DaemonProcess,
) -> None:
    status, headers, _ = ask(
        shared_daemon, "/state", "OPTIONS", Origin=ORIGIN, Access_Control_Request_Method="GET"
    )
    assert status == 403
    assert headers["Access-Control-Allow-Origin"] is None


POST = b"POST /config HTTP/1.1\r\nHost: x\r\n"
BROKEN_REQUESTS = {
    "gzip": POST + b"Content-Encoding: gzip\r\nContent-Length: 8\r\n\r\nnot gzip",
    "chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nbad chunk\r\n",
    "cut": POST + b"Content-Length: 80\r\n\r\ncut",
    "length": POST + b"Content-Length: -1\r\n\r\n",
    "version": b"GET /state HTTP/9.9\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "long": b"GET " + b"/" * 20_000 + b" HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("request_of_a_stranger", BROKEN_REQUESTS.values(), ids=BROKEN_REQUESTS)
def test_a_stranger_s_broken_request_writes_no_traceback(
    quiet: DaemonProcess, request_of_a_stranger: bytes
) -> None:
    before = len(quiet.stderr)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", quiet.port), 20) as connection:
            connection.settimeout(60)
            head, gap, body = request_of_a_stranger.partition(b"\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                connection.sendall(head + gap)
                if body:
                    # The refusal comes before the body is read.
                    connection.recv(1)
                    connection.sendall(body)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    continue
    assert ask(quiet, "/healthz")[0] == 200
    # What a daemon says of itself in its first seconds may still come.
    assert [line for line in quiet.stderr[before:] if " INFO " not in line] == []


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon that asks this machine for the secret, too, and logs as usual."""
    home = tmp_path_factory.mktemp("quiet")
    (home / "skulk.yaml").write_text(CONFIG)
    process = spawn_daemon(home)
    try:
        process.wait_ready()
        yield process
    finally:
        process.kill()
