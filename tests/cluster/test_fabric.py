"""The fabric between real sessions on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from skulkd.cluster import fabric_setup
from skulkd.cluster.fabric import FabricError
from skulkd.cluster.send_queue import SendQueue
from skulkd.peers import PeerGone, PeerRefused, PeerSilent
from skulkd.wire.ids import NodeId
from tests.cluster.fabrics import DEADLINE_S, Node, fabrics, open_fabric


async def echo(asker: NodeId, body: bytes) -> bytes:
    return asker.encode() + b":" + body


async def count_up(_asker: NodeId, body: bytes) -> AsyncIterator[bytes]:
    for number in range(int(body)):
        yield b"%d" % number


async def test_nodes_that_know_one_address_all_find_each_other(tmp_path: Path) -> None:
    async with fabrics(tmp_path, "a", "b") as (a, b):
        c = Node("c", tmp_path, peers=[a.address])
        await open_fabric(c.fabric)
        try:
            await a.sees(b, c)
            for _ in range(10):
                # Gossip may lose this link; a cluster notices and introduces the two again.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(c.sees(a, b), 5)
                    break
                await asyncio.to_thread(c.fabric.introduce, [b.address])
            await b.sees(a, c)
            await c.sees(a, b)
        finally:
            await asyncio.to_thread(c.fabric.close)


async def test_gossip_alone_links_nodes_that_know_only_one_in_the_middle(tmp_path: Path) -> None:
    """Nobody is introduced here. One link in some is lost, so a few newcomers may be needed."""
    async with fabrics(tmp_path, "b", "a") as (b, a):
        await a.sees(b)
        for number in range(12):
            c = Node(f"c{number}", tmp_path, peers=[b.address])
            await open_fabric(c.fabric)
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(5):
                        await c.sees(a, b)
                        await a.sees(c)
                    assert a.address not in c.fabric.plan.peers
                    return
            finally:
                await asyncio.to_thread(c.fabric.close)
        pytest.fail("twelve nodes that knew only b, and none of them met a")


async def test_questions_are_answered_refused_or_time_out(tmp_path: Path) -> None:
    async def refuse(_asker: NodeId, _body: bytes) -> bytes:
        raise PeerRefused(b.node_id, "too_big", "it does not fit", b'{"short": 3}')

    async def never(_asker: NodeId, _body: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def broken(_asker: NodeId, _body: bytes) -> bytes:
        raise KeyError("oops")

    async with fabrics(tmp_path, "a", "b") as (a, b):
        await a.sees(b)
        await b.sees(a)
        for method, answer in [("echo", echo), ("no", refuse), ("never", never), ("bad", broken)]:
            b.peers.serve(f"test.{method}", answer)
        assert await a.peers.ask(b.node_id, "test.echo", b"hi", deadline_s=600) == b"node-a:hi"
        big = bytes(16 * 1024 * 1024)
        assert len(await a.peers.ask(b.node_id, "test.echo", big, deadline_s=600)) > len(big)
        with pytest.raises(PeerRefused, match="it does not fit") as refused:
            await a.peers.ask(b.node_id, "test.no", b"", deadline_s=600)
        assert (refused.value.kind, refused.value.data) == ("too_big", b'{"short": 3}')
        with pytest.raises(PeerRefused) as failed:
            await a.peers.ask(b.node_id, "test.bad", b"", deadline_s=600)
        assert failed.value.kind == "internal_error"
        with pytest.raises(PeerRefused) as unknown:
            await a.peers.ask(b.node_id, "test.none", b"", deadline_s=600)
        assert unknown.value.kind == "unknown_method"
        with pytest.raises(PeerSilent):
            await a.peers.ask(b.node_id, "test.never", b"", deadline_s=0.05)
        with pytest.raises(PeerGone):
            await a.peers.ask(NodeId("node-x"), "test.echo", b"", deadline_s=600)


async def test_a_stream_keeps_order_and_waits_for_a_slow_reader(tmp_path: Path) -> None:
    produced = 0

    async def large(_asker: NodeId, _body: bytes) -> AsyncIterator[bytes]:
        nonlocal produced
        for number in range(200):
            produced += 1
            yield number.to_bytes(2, "big") * 32_768

    async with fabrics(tmp_path, "a", "b") as (a, b):
        await a.sees(b)
        await b.sees(a)
        b.peers.serve_stream("test.count", count_up)
        pieces = a.peers.stream(b.node_id, "test.count", b"5000", deadline_s=600)
        assert [int(piece) async for piece in pieces] == list(range(5000))
        b.peers.serve_stream("test.large", large)
        slow = a.peers.stream(b.node_id, "test.large", b"", deadline_s=600)
        await anext(slow)
        assert produced < 100
        assert len([piece async for piece in slow]) == 199


async def test_closing_a_stream_ends_its_feed_on_the_other_node(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def endless(_asker: NodeId, _body: bytes) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 1000
        finally:
            ended.set()

    async with fabrics(tmp_path, "a", "b") as (a, b):
        await a.sees(b)
        await b.sees(a)
        b.peers.serve_stream("test.endless", endless)
        pieces = a.peers.stream(b.node_id, "test.endless", b"", deadline_s=600)
        assert await anext(pieces)
        await pieces.aclose()
        async with asyncio.timeout(DEADLINE_S):
            await ended.wait()


async def test_a_node_that_goes_ends_every_wait_for_it(tmp_path: Path) -> None:
    began = asyncio.Event()

    async def hang(_asker: NodeId, _body: bytes) -> bytes:
        began.set()
        await asyncio.Event().wait()
        return b""

    async def one(_asker: NodeId, _body: bytes) -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.Event().wait()

    async with fabrics(tmp_path, "a", "b") as (a, b):
        await a.sees(b)
        await b.sees(a)
        b.peers.serve("test.hang", hang)
        b.peers.serve_stream("test.one", one)
        waiting = asyncio.create_task(a.peers.ask(b.node_id, "test.hang", b"", deadline_s=600))
        pieces = a.peers.stream(b.node_id, "test.one", b"", deadline_s=600)
        assert await anext(pieces) == b"first"
        await began.wait()
        await asyncio.to_thread(b.fabric.close)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(PeerGone, match="node-b was lost"):
                await waiting
            with pytest.raises(PeerGone):
                await anext(pieces)


async def test_what_is_published_reaches_all_others_in_order(tmp_path: Path) -> None:
    async with fabrics(tmp_path, "a", "b", "c") as (a, b, c):
        for node in (a, b, c):
            await node.sees(*({a, b, c} - {node}))
        for number in range(100):
            a.fabric.publish("all", b"%d" % number)
        for node in (b, c):
            await node.until(lambda node=node: len(node.heard) >= 100)
            assert [int(body) for _, plane, body in node.heard] == list(range(100))
        assert not a.heard


@pytest.mark.parametrize(
    "other", [{"secret": "another secret altogether"}, {"namespace": "elsewhere"}]
)
async def test_another_secret_or_namespace_sees_nothing(tmp_path: Path, other: object) -> None:
    async with fabrics(tmp_path, "a", "b") as (a, b):
        await a.sees(b)
        stranger = Node("x", tmp_path, peers=[a.address], **other)  # type: ignore[arg-type]
        await open_fabric(stranger.fabric)
        try:
            # A third friend that joins later is seen; by then the stranger would have been, too.
            friend = Node("c", tmp_path, peers=[a.address, b.address])
            await open_fabric(friend.fabric)
            try:
                await a.sees(friend)
                await friend.sees(a, b)
                assert stranger.node_id not in a.here.keys() | b.here.keys() | friend.here.keys()
                assert not stranger.here
                assert not stranger.fabric.linked()
            finally:
                await asyncio.to_thread(friend.fabric.close)
        finally:
            await asyncio.to_thread(stranger.fabric.close)


async def test_nodes_that_lost_each_other_can_be_introduced(tmp_path: Path) -> None:
    async with fabrics(tmp_path, "a") as (a,), fabrics(tmp_path, "b") as (b,):
        assert not a.here
        async with asyncio.timeout(DEADLINE_S):
            while not (a.here and b.here):
                # Two nodes that dial each other at once may both give up; a cluster tries again.
                await asyncio.to_thread(a.fabric.introduce, [b.address])


async def test_the_password_file_is_private_and_is_not_the_secret(tmp_path: Path) -> None:
    async with fabrics(tmp_path, "a") as (a,):
        files = [path for path in (tmp_path / "a").iterdir() if path.is_file()]
        assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600]
        assert a.fabric.plan.secret not in files[0].read_text()
        assert a.fabric.plan.secret not in repr(a.fabric.plan)


async def test_what_cannot_be_sent_is_counted_and_said_once_for_each_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with fabrics(tmp_path, "a", "b") as (a, b):
        await a.sees(b)
        session = a.fabric._session
        assert session is not None
        session.close()  # type: ignore[no-untyped-call]  # as when Zenoh gives up by itself
        for _ in range(3):
            a.fabric.publish("beat", b"x")
            a.fabric.nudge(b.node_id, b"x")
            a.fabric.send(b.node_id, b"x")
        async with asyncio.timeout(DEADLINE_S):
            while a.fabric.traffic.failed["one"] < 3:  # noqa: ASYNC110 - counted by a thread
                await asyncio.sleep(0.02)
        assert a.fabric.traffic.failed == {"beat": 3, "nudge": 3, "one": 3}
        assert a.fabric.traffic.frames_out == 0
        lines = [one.getMessage() for one in caplog.records if "cannot send" in one.getMessage()]
        assert sorted(line.partition(":")[0] for line in lines) == [
            "cannot send to all nodes (beat)",
            "cannot send to node-b (nudge)",
            "cannot send to node-b (one)",
        ]
        a.fabric.forget(b.node_id)
        a.fabric.nudge(b.node_id, b"x")
        assert "cannot send to node-b (nudge)" in caplog.records[-1].getMessage()


async def test_a_frame_that_somebody_recorded_cannot_be_said_again(tmp_path: Path) -> None:
    async with fabrics(tmp_path, "a", "b") as (a, b):
        await a.sees(b)
        await b.sees(a)
        recorded: list[tuple[str, bytes]] = []
        session = a.fabric._session
        assert session is not None

        class Tape:
            """What a stranger on the LAN could write down, and say again on a link of its own."""

            def put(self, key: str, frame: bytes, **how: object) -> None:
                recorded.append((key, frame))
                session.put(key, frame, **how)  # type: ignore[union-attr, arg-type]

        a.fabric._session = Tape()  # type: ignore[assignment]
        try:
            a.fabric.publish("beat", b"bye")
            a.fabric.nudge(b.node_id, b'{"k": "x"}\n')
            await b.until(lambda: len(b.heard) == 2)
            for key, frame in recorded * 3:
                session.put(key, frame)
                session.put(key.replace("node-a", "node-c"), frame)
            a.fabric.publish("all", b"last")
            a.fabric.publish("beat", b"last")
            a.fabric.nudge(b.node_id, b'{"k": "last"}\n')
            async with asyncio.timeout(DEADLINE_S):
                # Counted by a thread, and what is urgent comes first.
                while len(b.heard) < 5 or b.fabric.traffic.replayed < 6:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        finally:
            a.fabric._session = session
        assert len(b.heard) == 5
        assert b.fabric.traffic.replayed == 6


async def test_on_a_full_disk_lost_nodes_are_still_called_and_a_start_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fabrics(tmp_path, "a", "b") as (a, b):

        def full(path: Path, *_: object, **__: object) -> None:
            raise OSError(28, "No space left on device", str(path))

        monkeypatch.setattr(fabric_setup, "write_atomic", full)
        await asyncio.to_thread(a.fabric.introduce, [b.address])
        again = Node("b", tmp_path, peers=[a.address])
        await open_fabric(again.fabric)
        await asyncio.to_thread(again.fabric.close)
        stranger = Node("new", tmp_path, peers=[a.address])
        with pytest.raises(FabricError, match="password file cannot be written"):
            await asyncio.to_thread(stranger.fabric.open, asyncio.get_running_loop())


async def test_a_message_that_cannot_be_handled_does_not_make_a_node_deaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with fabrics(tmp_path, "a", "b") as (a, b):
        await a.sees(b)
        await b.sees(a)
        b.peers.serve("echo", echo)
        with monkeypatch.context() as patched:
            failed = asyncio.Event()

            def fail(*_: object) -> None:
                failed.set()
                raise RuntimeError("a bug")

            patched.setattr(b, "received", fail)
            a.fabric.send(b.node_id, b"anything")
            await asyncio.wait_for(failed.wait(), DEADLINE_S)
        answer = await a.peers.ask(b.node_id, "echo", b"x", deadline_s=DEADLINE_S)
        assert answer == b"node-a:x"
        assert "a bug" in caplog.text


async def test_a_send_that_fails_does_not_end_the_sender() -> None:
    sent: list[bytes] = []

    def send(_: NodeId, body: bytes) -> None:
        if body == b"bad":
            raise RuntimeError("a bug")
        sent.append(body)

    outbox = SendQueue(NodeId("node-a"), send)
    for body in (b"one", b"bad", b"two"):
        assert outbox.put(body)
    async with asyncio.timeout(DEADLINE_S):
        while sent != [b"one", b"two"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    outbox.close()


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_DEFER_ACCEPT is an option of Linux")
async def test_silent_connections_stay_in_the_kernel_and_keep_nobody_out(tmp_path: Path) -> None:
    async with fabrics(tmp_path, "a") as (a,):
        port = int(a.address.rpartition(":")[2])
        with contextlib.ExitStack() as stack:
            strangers = {
                stack.enter_context(socket.create_connection(("127.0.0.1", port))).getsockname()
                for _ in range(400)
            }
            b = Node("b", tmp_path, peers=[a.address])
            await open_fabric(b.fabric)
            try:
                await b.sees(a)
                assert accepted_from(port) & strangers == set()
                assert accepted_from(port), "the link of b is seen by this way of looking"
            finally:
                await asyncio.to_thread(b.fabric.close)


def accepted_from(port: int) -> set[tuple[str, int]]:
    """The far ends of connections that this process has accepted on the port."""
    found = psutil.Process().net_connections(kind="tcp")
    return {tuple(one.raddr) for one in found if one.raddr and one.laddr.port == port}
