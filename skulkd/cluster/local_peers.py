"""Calls of a node to itself, answered in this process.

`FabricPeers` adds the calls to other nodes; here every other node is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from skulkd.peers import Answer, Feed, PeerGone, PeerNode, PeerRefused, PeerSilent
from skulkd.wire.ids import NodeId

UNKNOWN_METHOD = "unknown_method"


class LocalPeers:
    """Calls to this node only."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self.answers: dict[str, Answer] = {}
        self.feeds: dict[str, Feed] = {}

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    def others(self) -> Sequence[PeerNode]:
        return ()

    async def ask(self, node: NodeId, method: str, body: bytes, *, deadline_s: float) -> bytes:
        self._check_here(node)
        answer = self.answers.get(method)
        if answer is None:
            raise unknown_method(node, method)
        try:
            async with asyncio.timeout(deadline_s):
                return await answer(self._node_id, body)
        except TimeoutError:
            raise silent(node, deadline_s) from None

    async def stream(
        self, node: NodeId, method: str, body: bytes, *, deadline_s: float
    ) -> AsyncGenerator[bytes, None]:
        self._check_here(node)
        feed = self.feeds.get(method)
        if feed is None:
            raise unknown_method(node, method)
        pieces = feed(self._node_id, body)
        async with closing(pieces):
            try:
                async with asyncio.timeout(deadline_s):
                    piece = await anext(pieces)
            except TimeoutError:
                raise silent(node, deadline_s) from None
            except StopAsyncIteration:
                return
            yield piece
            async for piece in pieces:
                yield piece

    def serve(self, method: str, answer: Answer) -> None:
        self.answers[method] = answer

    def serve_stream(self, method: str, feed: Feed) -> None:
        self.feeds[method] = feed

    def _check_here(self, node: NodeId) -> None:
        if node != self._node_id:
            raise gone(node)


@contextlib.asynccontextmanager
async def closing(pieces: AsyncIterator[bytes]) -> AsyncIterator[None]:
    """Close a stream at the end of the block, if it is a generator."""
    try:
        yield
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


def unknown_method(node: NodeId, method: str) -> PeerRefused:
    return PeerRefused(node, UNKNOWN_METHOD, f"{node} does not know {method}")


def gone(node: NodeId) -> PeerGone:
    return PeerGone(node, f"{node} is not in the cluster")


def silent(node: NodeId, deadline_s: float) -> PeerSilent:
    return PeerSilent(node, f"{node} did not answer in {deadline_s:g} s")
