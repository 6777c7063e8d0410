"""Connections to the fabric's port are admitted by address, and strangers do not keep nodes out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skulkd.cluster.accept_filter import Pending, attach, pending_connections, program
from skulkd.cluster.accept_gate import (
    ADMITTED_S,
    BURST,
    MOST_ADMITTED,
    MOST_REFUSED,
    MOST_WAITING,
    PER_SECOND,
    AcceptGate,
    Admission,
    admit_connections,
)
from tests.cluster.certificates import make_certificates, tls_files
from tests.cluster.fabrics import DEADLINE_S, Node, fabrics, open_fabric

STRANGERS = 400
linux = pytest.mark.skipif(sys.platform != "linux", reason="socket filters of Linux")


def some(count: int, host: int = 1) -> list[Pending]:
    return [Pending(bytes([192, 0, 2, host]), 1000 + port) for port in range(count)]


def test_an_address_is_admitted_up_to_its_budget_and_then_by_time() -> None:
    admission, waiting = Admission(), some(30)
    assert admission.update(waiting, 0.0)
    assert list(admission.admitted) == waiting[:BURST]
    waiting = waiting[BURST:]  # the others were accepted
    admission.update(waiting, 0.4 / PER_SECOND)
    assert not admission.admitted
    admission.update(waiting, 3 / PER_SECOND)
    assert list(admission.admitted) == waiting[:3]


def test_a_flood_of_one_address_takes_nothing_from_another() -> None:
    admission = Admission()
    admission.update(some(STRANGERS, host=1), 0.0)
    [node] = some(1, host=2)
    admission.update([*some(STRANGERS, host=1), node], 0.1)
    assert node in admission.admitted
    assert admission.refused == {some(1, host=1)[0].host}


def test_few_of_many_addresses_come_before_many_of_one() -> None:
    admission = Admission()
    crowds = [one for host in range(100, 200) for one in some(20, host)]
    [node] = some(1, host=2)
    admission.update([*crowds, node], 0.0)
    assert node in admission.admitted
    assert len(admission.admitted) == MOST_ADMITTED


@pytest.mark.parametrize(
    ("count", "refused"), [(MOST_WAITING, False), (MOST_WAITING + 1, True)], ids=["most", "more"]
)
def test_an_address_with_too_many_waiting_is_refused_until_they_are_gone(
    count: int, refused: bool
) -> None:
    admission = Admission()
    admission.update(some(count), 0.0)
    assert bool(admission.refused) is refused
    admission.update([], 1.0)
    assert not admission.refused
    assert not admission.is_busy


def test_a_connection_that_stays_silent_gives_its_place_back_for_good() -> None:
    admission, [silent] = Admission(), some(1)
    admission.update([silent], 0.0)
    assert silent in admission.admitted
    assert admission.update([silent], ADMITTED_S + 1)
    assert not admission.admitted
    assert not admission.update([silent], 1000.0)
    admission.update([], 1001.0)
    admission.update([silent], 1002.0)  # the same port again, a new connection
    assert silent in admission.admitted


@contextlib.contextmanager
def listener(host: str) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server(
        (host, 0), family=family, dualstack_ipv6=host == "::", backlog=128
    ) as sock:
        sock.settimeout(DEADLINE_S)
        yield sock


@linux
@pytest.mark.parametrize(
    ("listens", "target"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1"), ("::", "::1")],
)
def test_the_filter_passes_admitted_connections_only(listens: str, target: str) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(listener(listens))
        port = server.getsockname()[1]
        attach(server, program((), ()))
        clients = [
            stack.enter_context(socket.create_connection((target, port), DEADLINE_S))
            for _ in range(3)
        ]
        for client in clients:
            client.sendall(b"hello")
        waiting = pending_connections(server.family, port)
        own = [client.getsockname()[1] for client in clients]
        assert sorted(one.port for one in waiting) == sorted(own)
        [admitted] = [one for one in waiting if one.port == own[1]]
        attach(server, program([admitted], ()))
        accepted = stack.enter_context(server.accept()[0])
        assert accepted.getpeername()[1] == own[1]
        # What an accepted connection inherited never stops it, whatever becomes of the listener's.
        attach(server, program((), ()))
        clients[1].sendall(b" again")
        clients[1].shutdown(socket.SHUT_WR)
        assert accepted.makefile("rb").read() == b"hello again"
        assert sorted(one.port for one in pending_connections(server.family, port)) == sorted(
            [own[0], own[2]]
        )


@linux
def test_a_refused_host_is_not_answered_and_others_are() -> None:
    with listener("127.0.0.1") as server, contextlib.ExitStack() as stack:
        address = server.getsockname()
        attach(server, program((), [socket.inet_aton("127.0.0.2")]))
        refused = stack.enter_context(socket.socket())
        refused.setblocking(False)
        refused.bind(("127.0.0.2", 0))
        refused.connect_ex(address)
        stack.enter_context(socket.create_connection(address, DEADLINE_S))
        [waiting] = pending_connections(server.family, address[1])
        assert waiting.host == socket.inet_aton("127.0.0.1")


@linux
def test_a_gate_that_ends_lets_everything_pass() -> None:
    with listener("127.0.0.1") as server:
        address = server.getsockname()
        gate = AcceptGate(address[1])
        gate.tick(0.0)
        with socket.create_connection(address, DEADLINE_S) as client:
            assert pending_connections(server.family, address[1])
            gate.end()
            client.sendall(b"x")
            with server.accept()[0] as accepted:
                assert accepted.recv(1) == b"x"


@contextlib.asynccontextmanager
async def gated(node: Node) -> AsyncIterator[None]:
    gate = asyncio.create_task(admit_connections(node.fabric))
    await asyncio.sleep(0)  # its first step closes the gate
    try:
        yield
    finally:
        gate.cancel()
        await asyncio.gather(gate, return_exceptions=True)


@linux
async def test_strangers_that_send_garbage_do_not_keep_a_node_out(tmp_path: Path) -> None:
    make_certificates(tmp_path, "a", "b")
    async with fabrics(tmp_path, "a", tls=tls_files(tmp_path, "a")) as (a,), gated(a):
        address = ("127.0.0.1", int(a.address.rpartition(":")[2]))
        with contextlib.ExitStack() as stack:
            began = time.monotonic()
            strangers = [stack.enter_context(socket.socket()) for _ in range(STRANGERS)]
            for one in strangers:
                one.setblocking(False)
                one.bind(("127.0.0.2", 0))
                one.connect_ex(address)
            for one in strangers:
                with contextlib.suppress(OSError):
                    one.send(b"garbage")
            b = Node("b", tmp_path, peers=[a.address], tls=tls_files(tmp_path, "b"))
            await open_fabric(b.fabric)
            try:
                await b.sees(a)
                answered = sum(has_answer(one) for one in strangers)
                budget = BURST + (time.monotonic() - began) * PER_SECOND
                assert 0 < answered <= budget + 1
            finally:
                await asyncio.to_thread(b.fabric.close)


def has_answer(sock: socket.socket) -> bool:
    """Whether the listener has accepted it: a failed handshake is answered or closed."""
    try:
        sock.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@linux
def test_the_largest_filter_is_one_that_the_kernel_takes() -> None:
    """Older kernels give a socket 20 KiB for its options, filters included."""
    hosts = [bytes(12) + number.to_bytes(4) for number in range(1, MOST_ADMITTED + MOST_REFUSED)]
    largest = program([Pending(host, 1) for host in hosts[:MOST_ADMITTED]], hosts[-MOST_REFUSED:])
    assert len(largest) * 8 < 16 * 1024
    with listener("::1") as server:
        attach(server, largest)
