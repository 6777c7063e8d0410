"""Asking other nodes: what the rooms of a node may expect of the cluster between them.

The rooms below the composition root ask through this seam and never see the fabric that
carries it, so each of them runs and is tested alone. `cluster` implements it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from skulkd.wire.ids import NodeId

Answer = Callable[[NodeId, bytes], Awaitable[bytes]]
"""Answers a question of another node (or of this one); raises `PeerRefused` to refuse it."""

Feed = Callable[[NodeId, bytes], AsyncIterator[bytes]]
"""Answers with many pieces, in order. Closed early when the asker goes away."""


class PeerError(Exception):
    """A question was not answered; `str()` is a sentence that names the node."""

    def __init__(self, node_id: NodeId, message: str) -> None:
        super().__init__(message)
        self.node_id = node_id


class PeerGone(PeerError):
    """The node is not in the cluster, or left it before it had answered."""


class PeerSilent(PeerError):
    """The node is there and did not answer within the deadline."""


class PeerRefused(PeerError):
    """The node answered no. `kind` is for programs, `data` is JSON of the refusal's own shape."""

    def __init__(self, node_id: NodeId, kind: str, message: str, data: bytes = b"{}") -> None:
        super().__init__(node_id, message)
        self.kind = kind
        self.data = data


@dataclass(frozen=True, slots=True)
class PeerNode:
    """Another node as the cluster knows it."""

    node_id: NodeId
    name: str


class Peers(Protocol):
    """The other nodes of this cluster. This node's own id may be asked, too."""

    @property
    def node_id(self) -> NodeId: ...

    def others(self) -> Sequence[PeerNode]:
        """Who is there now, without this node."""
        ...

    async def ask(self, node: NodeId, method: str, body: bytes, *, deadline_s: float) -> bytes:
        """One question, one answer. Raises PeerError."""
        ...

    def stream(
        self, node: NodeId, method: str, body: bytes, *, deadline_s: float
    ) -> AsyncIterator[bytes]:
        """Pieces in order, none lost; `deadline_s` is for the first. Closing it ends the feed.

        Raises PeerError, `PeerGone` as soon as the node is lost.
        """
        ...

    def serve(self, method: str, answer: Answer) -> None:
        """Answer questions of this name, from now on."""
        ...

    def serve_stream(self, method: str, feed: Feed) -> None:
        """Answer questions of this name with a stream, from now on."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of asking one of several nodes: an answer, or why there is none."""

    peer: PeerNode
    answer: bytes | None = None
    error: PeerError | None = None


async def ask_others(
    peers: Peers, method: str, body: bytes = b"{}", *, deadline_s: float
) -> list[Asked]:
    """Ask all other nodes at the same time. Whoever does not answer is listed with the reason."""

    async def one(peer: PeerNode) -> Asked:
        try:
            answer = await peers.ask(peer.node_id, method, body, deadline_s=deadline_s)
        except PeerError as error:
            return Asked(peer, error=error)
        return Asked(peer, answer)

    return await asyncio.gather(*(one(peer) for peer in peers.others()))
