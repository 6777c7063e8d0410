"""Asking all other nodes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from skulkd.peers import PeerGone, PeerRefused, PeerSilent, ask_others
from skulkd.wire.ids import NodeId
from tests.peer_mesh import peer_mesh


async def test_whoever_does_not_answer_is_listed_with_the_reason() -> None:
    a, b, c, d = peer_mesh("a", "b", "c", "d")

    async def answer(asker: NodeId, body: bytes) -> bytes:
        return asker.encode() + body

    async def hang(_asker: NodeId, _body: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    b.serve("x.y", answer)
    c.serve("x.y", hang)
    asked = await ask_others(a, "x.y", b"!", deadline_s=0.05)
    assert [one.peer.node_id for one in asked] == ["b", "c", "d"]
    assert [one.answer for one in asked] == [b"a!", None, None]
    assert isinstance(asked[1].error, PeerSilent)
    assert isinstance(asked[2].error, PeerRefused)
    d.leave()
    assert len(await ask_others(a, "x.y", deadline_s=0.05)) == 2


async def test_a_lost_node_interrupts_a_stream_that_waits() -> None:
    a, b = peer_mesh("a", "b")
    closed = asyncio.Event()

    async def feed(_asker: NodeId, _body: bytes) -> AsyncIterator[bytes]:
        try:
            yield b"1"
            await asyncio.Event().wait()
        finally:
            closed.set()

    b.serve_stream("x.y", feed)
    got = []
    try:
        async for piece in a.stream(NodeId("b"), "x.y", b"", deadline_s=600):
            got.append(piece)
            b.leave()
    except PeerGone as error:
        assert error.node_id == "b"
    assert got == [b"1"]
    assert closed.is_set()
