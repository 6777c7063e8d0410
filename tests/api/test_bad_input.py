"""What a hostile or broken client may send: a clear answer, and the daemon still there."""

from __future__ import annotations

import json
import socket

import pytest

from tests.api.test_endpoints import fetch
from tests.daemon_process import DaemonProcess


def talk(daemon: DaemonProcess, data: bytes) -> bytes:
    """Everything the daemon says to these bytes until it closes."""
    with socket.create_connection(("127.0.0.1", daemon.port), 20) as connection:
        connection.sendall(data)
        heard = b""
        try:
            while part := connection.recv(65536):
                heard += part
        except ConnectionResetError:
            return heard
    return heard


def get(daemon: DaemonProcess, path: bytes) -> tuple[int, dict[str, object]]:
    heard = talk(
        daemon, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    head, _, body = heard.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), json.loads(body)


@pytest.mark.parametrize(
    "path",
    [
        b"/%00",
        b"/node_id%00",
        b"/../../../../etc/passwd",
        b"/..%2f..%2f..%2fetc/passwd",
        b"/api/docs/../../../etc/passwd",
        b"/api/docs/%2e%2e/%2e%2e/etc/passwd",
        b"/v1/diagnostics/cluster/%00",
        b"/v1/diagnostics/cluster/..%2f..%2fetc%2fpasswd",
        b"/v1/diagnostics/cluster/%ff%fe",
        b"/v1/diagnostics/cluster/%c0%ae%c0%ae",
        b"/v1/diagnostics/cluster/%ed%a0%80",
        b"/v1/diagnostics/cluster/%",
        b"/v1/diagnostics/cluster/%zz",
        b"/v1/diagnostics/cluster/" + b"a" * 8000,
        b"/" + b"a/" * 4000,
        b"//node_id",
        b"/node_id/",
        b"/node%2fidentity",
        b"/\xff\xfe",
        b"/node_id?\xff",
        b"http://[::1/state",
        b"*",
    ],
    ids=lambda path: repr(path[:40]),
)
def test_an_odd_path_is_refused_in_json_and_reaches_no_file(
    shared_daemon: DaemonProcess, path: bytes
) -> None:
    status, body = get(shared_daemon, path)
    assert status in (400, 404)
    assert "root:" not in json.dumps(body)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"BREW /state HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /state HTTP/1.1\r\nHost: localhost\r\nBad Header\r\n\r\n",
        b"GET /state HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /state HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
        b"PUT /config HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"PUT /config HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"PUT /config HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=lambda data: repr(data[:30]),
)
def test_what_is_not_http_is_a_400_in_the_envelope(
    shared_daemon: DaemonProcess, data: bytes
) -> None:
    head, _, body = talk(shared_daemon, data).partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 Bad Request", b"HTTP/1.0 400"))
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("Bad Request", 400)


@pytest.mark.parametrize("text", ["%ff", "%ed%a0%80", "%00", "%F0%9F%92%A9", "a" * 4000])
def test_an_odd_query_value_is_just_an_unknown_node(
    shared_daemon: DaemonProcess, text: str
) -> None:
    status, _, body = fetch(shared_daemon, f"/admin/restart?node_id={text}", "POST")
    assert status == 404
    assert json.loads(body)["error"]["message"].startswith("Node not found: ")


def test_two_requests_in_one_packet_get_two_answers(shared_daemon: DaemonProcess) -> None:
    one = b"GET /node_id HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert talk(shared_daemon, one + last).count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize("path", [b"/nope", b"/node_id"])
def test_an_unknown_expectation_does_no_harm(shared_daemon: DaemonProcess, path: bytes) -> None:
    head, _, body = talk(
        shared_daemon,
        b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nExpect: magic\r\n"
        b"Connection: close\r\n\r\n",
    ).partition(b"\r\n\r\n")
    assert int(head.split(b" ", 2)[1]) == (200 if path == b"/node_id" else 417)
    assert b"Server: skulkd" in head
    assert b"application/json" in head
    json.loads(body)


def test_an_old_client_gets_the_stream_too(shared_daemon: DaemonProcess) -> None:
    head, _, body = talk(shared_daemon, b"GET /events HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b" 200 OK" in head
    assert isinstance(json.loads(body), list)


def test_a_body_nobody_asked_for_does_no_harm(shared_daemon: DaemonProcess) -> None:
    request = b"GET /node_id HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n"
    request += b"Connection: close\r\n\r\n"
    assert b" 200 OK" in talk(shared_daemon, request + b"x" * 300_000)


def test_the_daemon_survived_all_of_it_without_an_error(shared_daemon: DaemonProcess) -> None:
    """Last in this file: whatever came before, nothing was an unexpected error."""
    assert fetch(shared_daemon, "/readyz")[0] == 200
    assert "unexpected error" not in shared_daemon.said()
    assert "Traceback" not in shared_daemon.said()
