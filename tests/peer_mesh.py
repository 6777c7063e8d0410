"""Nodes in one process that ask each other without a network, for tests of single rooms.

Whole clusters are tested with real daemons on the real fabric; this is for the room that asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from skulkd.peers import Answer, Feed, PeerGone, PeerNode, PeerRefused, PeerSilent
from skulkd.wire.ids import NodeId


class MeshPeers:
    """One node of a mesh."""

    def __init__(self, mesh: dict[NodeId, MeshPeers], node_id: NodeId) -> None:
        self._mesh = mesh
        self._node_id = node_id
        self._answers: dict[str, Answer] = {}
        self._feeds: dict[str, Feed] = {}
        self._left = asyncio.Event()
        mesh[node_id] = self

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    def others(self) -> Sequence[PeerNode]:
        return [PeerNode(node, str(node)) for node in self._mesh if node != self._node_id]

    async def ask(self, node: NodeId, method: str, body: bytes, *, deadline_s: float) -> bytes:
        answer = self._peer(node)._answers.get(method)
        if answer is None:
            raise PeerRefused(node, "unknown_method", f"{node} does not know {method}")
        try:
            async with asyncio.timeout(deadline_s):
                return await answer(self._node_id, body)
        except TimeoutError:
            raise PeerSilent(node, f"{node} did not answer in {deadline_s:g} s") from None

    async def stream(
        self, node: NodeId, method: str, body: bytes, *, deadline_s: float
    ) -> AsyncIterator[bytes]:
        feed = self._peer(node)._feeds.get(method)
        if feed is None:
            raise PeerRefused(node, "unknown_method", f"{node} does not know {method}")
        pieces = aiter(feed(self._node_id, body))
        wait_s: float | None = deadline_s
        try:
            while True:
                piece = await self._next(node, pieces, wait_s)
                if piece is None:
                    return
                wait_s = None
                yield piece
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    async def _next(
        self, node: NodeId, pieces: AsyncIterator[bytes], wait_s: float | None
    ) -> bytes | None:
        """The next piece, None at the end; the loss of the node interrupts the wait for it."""
        piece: asyncio.Future[bytes | None] = asyncio.ensure_future(anext(pieces, None))
        gone = asyncio.ensure_future(self._peer(node)._left.wait())
        try:
            done, _ = await asyncio.wait(
                {piece, gone}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
            )
            if gone in done:
                raise PeerGone(node, f"{node} is gone")
            if piece not in done:
                raise PeerSilent(node, f"{node} did not answer in {wait_s:g} s")
            return piece.result()
        finally:
            for waiting in (piece, gone):
                waiting.cancel()
            await asyncio.gather(piece, gone, return_exceptions=True)

    def serve(self, method: str, answer: Answer) -> None:
        self._answers[method] = answer

    def serve_stream(self, method: str, feed: Feed) -> None:
        self._feeds[method] = feed

    def leave(self) -> None:
        """This node is gone for all others."""
        self._mesh.pop(self._node_id, None)
        self._left.set()

    def _peer(self, node: NodeId) -> MeshPeers:
        try:
            return self._mesh[node]
        except KeyError:
            raise PeerGone(node, f"{node} is not in the cluster") from None


def peer_mesh(*names: str) -> list[MeshPeers]:
    """Nodes that all know each other."""
    mesh: dict[NodeId, MeshPeers] = {}
    return [MeshPeers(mesh, NodeId(name)) for name in names]
