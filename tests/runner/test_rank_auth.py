"""Connections between ranks: who is let in, what is refused, and what a listener can read."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skulkd.runner.errors import GroupUnreachable
from skulkd.runner.exits import ExitCode
from skulkd.runner.framing import FrameError
from skulkd.runner.group.rank_auth import RankHello, SealedStream, WrongKey
from skulkd.runner.group.rank_server import MAX_PENDING, RankCredentials, RankServer, dial
from skulkd.runner.group.rank_stream import Transport
from skulkd.runner.group.rendezvous import Connections, RankInfo, rendezvous
from skulkd.runner.protocol import Configure, RankLinks, Status, TlsPaths
from skulkd.wire.ids import TaskId
from skulkd.wire.runners import RunnerConnected
from skulkd.wire.tasks import ConnectToGroup
from tests.cluster.certificates import make_certificates
from tests.daemon_process import wait_until
from tests.runner.rank_group import RankGroupOfRunners, free_hosts
from tests.runner.runner_process import DEADLINE_S, INSTANCE, Runner

PLAIN = Transport(None)
OURS = RankCredentials(b"k" * 32, PLAIN)
THEIRS = RankCredentials(b"x" * 32, PLAIN)
HELLO = RankHello("meeting", 1, 0)
SECRET_WORDS = b'{"admit":[{"prompt":[17,4,23,99]}]}'


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("certificates")
    make_certificates(home, "kite1", "kite2")
    return home


def tls_of(home: Path, name: str) -> TlsPaths:
    return TlsPaths(
        certificate=str(home / f"{name}.pem"),
        key=str(home / f"{name}.key"),
        authority=str(home / "ca.pem"),
    )


class Wire:
    """A relay between two ranks that keeps every byte, as a switch that is tapped would."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._sockets = [self._server]
        self.port: int = self._server.getsockname()[1]
        self.sent = bytearray()
        self.answered = bytearray()
        self._start(self._accept)

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        near, _ = self._server.accept()
        far = socket.create_connection(("127.0.0.1", self._target))
        self._sockets += [near, far]
        self._start(self._pass_on, near, far, self.sent)
        self._start(self._pass_on, far, near, self.answered)

    def _pass_on(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        while data := source.recv(65536):
            kept += data
            target.sendall(data)
        with contextlib.suppress(OSError):  # the other side may be gone, too
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for one in self._sockets:
            one.close()


class Listener:
    """Rank 0, and the ranks that it has let in."""

    def __init__(self, credentials: RankCredentials = OURS) -> None:
        self.met: queue.SimpleQueue[SealedStream] = queue.SimpleQueue()
        self.server = RankServer([("127.0.0.1", 0)], credentials, ("meeting", 0), self.met.put)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.server.port

    def next(self) -> SealedStream:
        return self.met.get(timeout=DEADLINE_S)


@contextlib.contextmanager
def listening(credentials: RankCredentials = OURS) -> Iterator[Listener]:
    made = Listener(credentials)
    try:
        yield made
    finally:
        made.server.close()


@pytest.mark.parametrize("encrypted", [False, True], ids=["tcp", "tls"])
def test_ranks_with_the_key_talk_both_ways(certificates: Path, encrypted: bool) -> None:
    ends = [
        RankCredentials(b"k" * 32, Transport(tls_of(certificates, name) if encrypted else None))
        for name in ("kite1", "kite2")
    ]
    with listening(ends[0]) as listener:
        caller = dial(listener.address, ends[1], HELLO, DEADLINE_S)
        called = listener.next()
        assert called.hello == HELLO
        large = bytes(range(256)) * 4096
        for sender, receiver in ((caller, called), (called, caller)):
            for content in (b"first", large, b""):
                thread = threading.Thread(target=sender.send, args=(content,))
                thread.start()
                assert receiver.receive() == content
                thread.join(DEADLINE_S)
        caller.close()
        assert called.receive() is None
        called.close()


@pytest.mark.parametrize("encrypted", [False, True], ids=["tcp", "tls"])
def test_what_is_said_is_on_the_wire_only_without_tls(certificates: Path, encrypted: bool) -> None:
    tls = tls_of(certificates, "kite1") if encrypted else None
    credentials = RankCredentials(b"k" * 32, Transport(tls))
    with listening(credentials) as listener:
        wire = Wire(listener.server.port)
        caller = dial(("127.0.0.1", wire.port), credentials, HELLO, DEADLINE_S)
        called = listener.next()
        called.send(SECRET_WORDS)
        assert caller.receive() == SECRET_WORDS
        caller.close()
        called.close()
        wire.close()
    assert (SECRET_WORDS in wire.answered) is not encrypted
    assert credentials.key not in bytes(wire.sent + wire.answered)


def test_neither_side_talks_to_one_without_the_key() -> None:
    with listening() as listener:
        with pytest.raises(WrongKey, match="does not have the key"):
            dial(listener.address, THEIRS, HELLO, DEADLINE_S)
        # Somebody that ignores the other side's proof fails with its own.
        with socket.create_connection(listener.address, DEADLINE_S) as impostor:
            impostor.sendall(_opening())
            assert len(impostor.recv(4096)) == 64
            # Nothing after it: a message would be refused for its tag as well.
            impostor.sendall(b"\0" * 32)
            assert impostor.recv(4096) == b""
        assert listener.met.empty()


def _opening() -> bytes:
    return b"skulk-rank-1" + bytes([0, 0, 1, 0, 0]) + b"n" * 32


def test_a_recorded_greeting_is_refused() -> None:
    with listening() as listener:
        wire = Wire(listener.server.port)
        caller = dial(("127.0.0.1", wire.port), OURS, HELLO, DEADLINE_S)
        caller.send(b'{"ring_port":1}')
        called = listener.next()
        assert called.receive() == b'{"ring_port":1}'
        caller.close()
        called.close()
        wire.close()
        recorded = bytes(wire.sent)
        with socket.create_connection(listener.address, DEADLINE_S) as impostor:
            # Greeting and proof, as the first time; the listener speaks in between.
            impostor.sendall(recorded[:49])
            assert len(impostor.recv(4096)) == 64
            impostor.sendall(recorded[49 : 49 + 32])
            assert impostor.recv(4096) == b""
        assert listener.met.empty()


@pytest.mark.parametrize("change", ["changed", "repeated", "left out"])
def test_messages_that_are_tampered_with_end_the_connection(change: str) -> None:
    with listening() as listener:
        caller = dial(listener.address, OURS, HELLO, DEADLINE_S)
        called = listener.next()
        frames: list[bytes] = []
        caller._stream.send, send = frames.append, caller._stream.send  # type: ignore[method-assign]
        for content in (b"one", b"two", b"three"):
            caller.send(content)
        altered = {
            "changed": [frames[0][:-1] + b"x"],
            "repeated": [frames[0], frames[0]],
            "left out": [frames[0], frames[2]],
        }[change]
        for frame in altered:
            send(frame)
        with pytest.raises(FrameError, match="wrong tag"):
            for _ in altered:
                called.receive()
        caller.close()
        called.close()


def test_a_call_for_another_rank_or_purpose_is_refused() -> None:
    with listening() as listener:
        for hello in (RankHello("meeting", 1, 2), RankHello("link", 1, 0)):
            with pytest.raises(OSError, match="closed"):
                dial(listener.address, OURS, hello, DEADLINE_S)


def test_silent_and_noisy_strangers_do_not_keep_ranks_waiting() -> None:
    """More of them than may wait at once, all connected before the first rank calls."""
    hosts = free_hosts(3)
    results: list[Connections | GroupUnreachable] = []

    def run(rank: int) -> None:
        try:
            results.append(rendezvous(RankInfo(hosts, rank, OURS, {}, DEADLINE_S)))
        except GroupUnreachable as error:
            results.append(error)

    leader = threading.Thread(target=run, args=(0,))
    leader.start()
    # Not in a tight loop: one of very many attempts would reach itself and take the port.
    strangers = [
        wait_until(lambda: _connect(hosts[0].port), "rank 0 to listen")
        for _ in range(MAX_PENDING + 20)
    ]
    for number, stranger in enumerate(strangers):
        if number % 2:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
    ranks = [threading.Thread(target=run, args=(rank,)) for rank in (1, 2)]
    for thread in ranks:
        thread.start()
    for thread in (leader, *ranks):
        thread.join(DEADLINE_S)
    assert [type(one) for one in results] == [Connections] * 3, results
    for stranger in strangers:
        stranger.close()
    for one in results:
        for channel in one.channels if isinstance(one, Connections) else []:
            channel.close()


def _connect(port: int) -> socket.socket | None:
    """None while rank 0 does not listen yet."""
    try:
        return socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    except ConnectionRefusedError:
        return None


def test_a_certificate_of_another_authority_is_refused(certificates: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path / "other", "kite5")
    ours = RankCredentials(b"k" * 32, Transport(tls_of(certificates, "kite1")))
    other = RankCredentials(b"k" * 32, Transport(tls_of(tmp_path / "other", "kite5")))
    hosts = free_hosts(2)
    with listening(ours) as listener:
        hosts = [hosts[0].model_copy(update={"port": listener.server.port}), hosts[1]]
        with pytest.raises(GroupUnreachable, match="is not rank 0 of this group"):
            rendezvous(RankInfo(hosts, 1, other, {}, DEADLINE_S))
        # Without TLS it is not even understood.
        with pytest.raises(OSError, match=r"closed|reset"):
            dial(listener.address, OURS, HELLO, DEADLINE_S)
        assert listener.met.empty()


def test_a_key_does_not_show_in_what_is_printed() -> None:
    links = RankLinks(key="5a5a", addresses=[], ring_address="127.0.0.1")
    shown = repr(links) + repr(Configure.model_construct(links=links)) + repr(OURS)
    assert "5a5a" not in shown
    assert "kkkk" not in shown


def test_impostors_do_not_disturb_a_group_that_starts(
    idle_ranks: Callable[..., RankGroupOfRunners], tiny: Path
) -> None:
    """They come first and stay; the real rank is let in and the group serves."""
    group = idle_ranks(2)
    group.configure(tiny)
    port = group.hosts[0].port
    connect = ConnectToGroup(task_id=TaskId("connect"), instance_id=INSTANCE)
    group.leader.run(connect)
    silent = wait_until(lambda: _connect(port), "rank 0 to listen")
    with pytest.raises(WrongKey):
        dial(("127.0.0.1", port), THEIRS, HELLO, DEADLINE_S)
    group.ranks[1].run(connect)
    for rank in group.ranks:
        rank.until(Status, lambda m: isinstance(m.status, RunnerConnected))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Runner.become_ready, group.ranks))
    assert group.chat("who is there", max_output_tokens=4).finish_reason() == "length"
    silent.close()
    assert "refused a connection from 127.0.0.1 to rank 0" in group.leader.log_text()


def test_a_rank_with_another_key_is_told_why_it_is_not_let_in(
    idle_ranks: Callable[..., RankGroupOfRunners], tiny: Path
) -> None:
    group = idle_ranks(2)
    group.keys = {1: "00" * 32}
    group.configure_rank(group.leader, 0, tiny, connect_deadline_s=5.0)
    group.configure_rank(group.ranks[1], 1, tiny)
    group.connect()
    for rank in reversed(group.ranks):  # rank 1 ends first
        rank.drain()
        assert rank.wait_exit() == ExitCode.CONNECT_DEADLINE
    assert "is not rank 0 of this group" in group.ranks[1].log_text()
    assert "did not call rank 0" in group.leader.log_text()
    assert "00" * 32 not in group.ranks[1].log_text()
