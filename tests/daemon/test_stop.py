"""Stopping and restarting: open requests, slow clients, signals, the process image."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import psutil
import pytest
import yaml

from tests.daemon_process import DaemonProcess, StartDaemon, wait_until

SLOW_CLIENTS = 200
HALF_A_PUT = (
    b"PUT /config HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 15\r\n\r\n{"node":'
)
HALF_A_HEAD = b"GET /state HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


def read_answer(connection: socket.socket) -> tuple[int, dict[str, object]]:
    heard = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            heard += part
    head, _, body = heard.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), json.loads(body)


def open_requests(process: DaemonProcess) -> int:
    """How many connections the daemon has accepted and not closed."""
    found = psutil.Process(process.pid).net_connections("tcp")
    return sum(1 for connection in found if connection.status == psutil.CONN_ESTABLISHED)


@contextlib.contextmanager
def connected(process: DaemonProcess, data: bytes, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", process.port), 30))
            client.sendall(data)
            clients.append(client)
        yield clients


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_daemon_ends_with_0(daemon: StartDaemon, number: signal.Signals) -> None:
    process = daemon()
    process.signal(number)
    assert process.wait_exit() == 0
    assert process.stderr[-1].endswith("INFO stopped")


def test_a_request_that_finishes_in_time_is_answered(daemon: StartDaemon) -> None:
    process = daemon()
    with connected(process, HALF_A_PUT, 1) as [client]:
        wait_until(lambda: open_requests(process) >= 1, "the request to be open")
        process.signal()
        wait_until(lambda: "SIGTERM" in process.said(), "the daemon to notice")
        client.sendall(b" null }")
        assert read_answer(client)[0] == 200
    assert process.wait_exit() == 0


def test_a_stopping_daemon_accepts_nothing_and_is_not_ready(daemon: StartDaemon) -> None:
    process = daemon()
    with connected(process, HALF_A_PUT, 1), connected(process, b"", 2) as [asks, other]:
        wait_until(lambda: open_requests(process) >= 3, "the connections")
        process.signal()
        wait_until(lambda: "SIGTERM" in process.said(), "the daemon to notice")
        wait_until(lambda: not _accepts(process.port), "the listener to close")
        close = b"HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        asks.sendall(b"GET /readyz " + close)
        other.sendall(b"GET /state " + close)
        for client in (asks, other):
            status, body = read_answer(client)
            assert status == 503
            assert body["error"]["message"] == "the daemon is shutting down"
    assert process.wait_exit() == 0


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_at_once(
    daemon: StartDaemon, number: signal.Signals, code: int
) -> None:
    process = daemon()
    with connected(process, HALF_A_PUT, 1):
        wait_until(lambda: open_requests(process) >= 1, "the request to be open")
        process.signal()
        wait_until(lambda: "SIGTERM" in process.said(), "the daemon to notice")
        process.signal(number)
        assert process.wait_exit() == code


def dribble(process: DaemonProcess, clients: list[socket.socket]) -> None:
    """A byte from every client, and an answer for somebody else in between."""
    wait_until(lambda: open_requests(process) >= len(clients), "all of them to be connected")
    for first in range(10):
        for client in clients[first::10]:
            client.sendall(b" ")
        assert process.get("/node_id") == process.node_id
    assert process.get("/readyz") == {"status": "ok"}


def test_two_hundred_slow_heads_stop_neither_others_nor_the_end(daemon: StartDaemon) -> None:
    process = daemon()
    with connected(process, HALF_A_HEAD, SLOW_CLIENTS) as clients:
        dribble(process, clients)
        process.signal()
        assert process.wait_exit() == 0
    assert "Traceback" not in process.said()


def test_two_hundred_slow_bodies_stop_nobody_and_get_a_503_at_the_end(daemon: StartDaemon) -> None:
    process = daemon()
    with connected(process, HALF_A_PUT, SLOW_CLIENTS) as clients:
        dribble(process, clients)
        process.signal()
        for client in clients:
            status, body = read_answer(client)
            assert status == 503
            assert body["error"] == {
                "message": "the daemon is shutting down",
                "type": "Service Unavailable",
                "param": None,
                "code": 503,
            }
    assert process.wait_exit() == 0
    assert f"{SLOW_CLIENTS} requests were not finished" in process.said()
    assert "Traceback" not in process.said()


def restart(process: DaemonProcess, query: str = "") -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(f"{process.url}/admin/restart{query}", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_restart_keeps_pid_name_and_port_but_not_the_id(daemon: StartDaemon) -> None:
    process = daemon("--name", "kite3")
    old_id, old_url = process.node_id, process.url
    assert restart(process, f"?node_id={old_id}") == (
        200,
        {"status": "restarting", "node_id": old_id},
    )
    process.wait_ready(2)
    assert process.process.poll() is None
    assert process.url == old_url
    assert process.node_id != old_id
    assert process.ready_lines[-1].name == "kite3"
    assert process.get("/node_id") == process.node_id
    bundle = process.get("/v1/diagnostics/node")
    assert process.pid in {entry["pid"] for entry in bundle["processes"]}
    assert process.stop() == 0


def test_a_restart_that_is_under_way_is_a_409_without_envelope(daemon: StartDaemon) -> None:
    """Both requests in one packet: the second is read before the first has its effect."""
    process = daemon()
    own = process.node_id
    post = b"POST /admin/restart HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(process, post + post, 1) as [client]:
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(65536):
                heard += part
    assert b"HTTP/1.1 409 Conflict" in heard
    assert b'{"status":"restart_already_pending","node_id":"%s"}' % own.encode() in heard
    process.wait_ready(2)


def test_a_restart_does_not_wait_for_slow_clients(daemon: StartDaemon) -> None:
    process = daemon()
    with connected(process, HALF_A_PUT, 20):
        wait_until(lambda: open_requests(process) >= 20, "the requests to be open")
        assert restart(process)[0] == 200
        process.wait_ready(2)
    assert process.get("/readyz") == {"status": "ok"}


def test_an_unknown_node_cannot_be_restarted(shared_daemon: DaemonProcess) -> None:
    status, body = restart(shared_daemon, "?node_id=node-0000")
    assert status == 404
    assert body["error"] == {
        "message": "Node not found: node-0000", "type": "Not Found", "param": None, "code": 404,
    }  # fmt: skip
    assert shared_daemon.get("/node_id") == shared_daemon.node_id


def test_kill_9_during_config_writes_leaves_a_whole_file(daemon: StartDaemon) -> None:
    """Killed again and again in the middle of writing: the file is always one of the versions."""
    home = None
    for writes in (1, 4, 9):
        process = daemon(home=home)
        home = process.home
        writer = ConfigWriter(process.url)
        wait_until(lambda w=writer, n=writes: w.written >= n, "some writes")
        process.signal(signal.SIGKILL)
        process.wait_exit()
        writer.thread.join(300)
        name = yaml.safe_load((home / "skulk.yaml").read_text())["node"]["name"]
        assert name in ("a" * 2000, "b" * 2000)


class ConfigWriter:
    """Puts one long name, then another, until the daemon is gone."""

    def __init__(self, url: str) -> None:
        self.written = 0
        self._url = url
        self.thread = threading.Thread(target=self._write, daemon=True)
        self.thread.start()

    def _write(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            for letter in itertools.cycle("ab"):
                body = json.dumps({"node": {"name": letter * 2000}}).encode()
                request = urllib.request.Request(f"{self._url}/config", data=body, method="PUT")
                with urllib.request.urlopen(request, timeout=600) as answer:
                    answer.read()
                self.written += 1
