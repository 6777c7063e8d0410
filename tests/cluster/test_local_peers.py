"""A node that is alone: it can ask itself, by the same rules as anybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from skulkd.cluster.local_peers import LocalPeers
from skulkd.peers import PeerGone, PeerRefused, PeerSilent
from skulkd.wire.ids import NodeId

ME, OTHER = NodeId("node-me"), NodeId("node-other")


async def echo(asker: NodeId, body: bytes) -> bytes:
    return asker.encode() + b":" + body


async def test_it_answers_itself() -> None:
    peers = LocalPeers(ME)
    peers.serve("test.echo", echo)
    assert peers.others() == ()
    assert await peers.ask(ME, "test.echo", b"hi", deadline_s=600) == b"node-me:hi"


async def test_everybody_else_is_gone_and_a_strange_method_is_refused() -> None:
    peers = LocalPeers(ME)
    with pytest.raises(PeerGone, match="node-other is not in the cluster"):
        await peers.ask(OTHER, "test.echo", b"", deadline_s=600)
    with pytest.raises(PeerRefused) as refused:
        await peers.ask(ME, "test.echo", b"", deadline_s=600)
    assert refused.value.kind == "unknown_method"
    with pytest.raises(PeerRefused):
        _ = [piece async for piece in peers.stream(ME, "test.count", b"", deadline_s=600)]


async def test_no_answer_is_a_silence_that_names_the_node() -> None:
    peers = LocalPeers(ME)

    async def never(_asker: NodeId, _body: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    peers.serve("test.never", never)
    with pytest.raises(PeerSilent, match="node-me did not answer in"):
        await peers.ask(ME, "test.never", b"", deadline_s=0.01)


async def test_a_stream_that_is_closed_ends_its_feed() -> None:
    peers = LocalPeers(ME)
    closed = asyncio.Event()

    async def count(_asker: NodeId, _body: bytes) -> AsyncIterator[bytes]:
        try:
            for number in range(1000):
                yield b"%d" % number
        finally:
            closed.set()

    peers.serve_stream("test.count", count)
    pieces = peers.stream(ME, "test.count", b"", deadline_s=600)
    assert [await anext(pieces), await anext(pieces)] == [b"0", b"1"]
    await pieces.aclose()
    assert closed.is_set()
