"""`Peers` over the fabric: calls with one answer, and streams with a bounded window.

Uses frames and the list of nodes, not Zenoh. Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from skulkd.cluster.frames import Head, encode
from skulkd.cluster.local_peers import LocalPeers, closing, gone, silent, unknown_method
from skulkd.peers import PeerError, PeerGone, PeerNode, PeerRefused
from skulkd.wire.ids import NodeId

WINDOW_BYTES = 1024 * 1024
PIECE_COST = 64
"""What a piece costs besides its bytes, so that empty ones are bounded, too."""
INTERNAL = "internal_error"
OVERLOADED = "overloaded"

log = logging.getLogger(__name__)

SendFrame = Callable[[NodeId, bytes], bool]


@dataclass(slots=True)
class _Incoming:
    """A stream that this node reads. None in the queue marks its end."""

    node: NodeId
    pieces: asyncio.Queue[bytes | PeerError | None] = field(default_factory=asyncio.Queue)
    next_seq: int = 0
    consumed: int = 0


@dataclass(slots=True)
class _Outgoing:
    """A stream that this node serves."""

    task: asyncio.Task[None]
    unread: int = 0
    room: asyncio.Event = field(default_factory=asyncio.Event)


class FabricPeers(LocalPeers):
    """Calls to the nodes that `here` lists."""

    def __init__(
        self, node_id: NodeId, here: Callable[[], Sequence[PeerNode]], send: SendFrame
    ) -> None:
        super().__init__(node_id)
        self._here = here
        self._send = send
        self._ids = count(1)
        self._asked: dict[int, tuple[NodeId, asyncio.Future[bytes]]] = {}
        self._incoming: dict[int, _Incoming] = {}
        self._outgoing: dict[tuple[NodeId, int], _Outgoing] = {}
        self._answering: set[asyncio.Task[None]] = set()

    def others(self) -> Sequence[PeerNode]:
        return self._here()

    async def ask(self, node: NodeId, method: str, body: bytes, *, deadline_s: float) -> bytes:
        if node == self._node_id:
            return await super().ask(node, method, body, deadline_s=deadline_s)
        self._check_member(node)
        number = next(self._ids)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = (node, answer)
        try:
            self._post(node, encode("ask", body, i=number, m=method, s=deadline_s))
            async with asyncio.timeout(deadline_s):
                return await answer
        except TimeoutError:
            raise silent(node, deadline_s) from None
        finally:
            self._asked.pop(number, None)

    async def stream(
        self, node: NodeId, method: str, body: bytes, *, deadline_s: float
    ) -> AsyncGenerator[bytes, None]:
        if node == self._node_id:
            async for piece in super().stream(node, method, body, deadline_s=deadline_s):
                yield piece
            return
        self._check_member(node)
        number = next(self._ids)
        incoming = self._incoming[number] = _Incoming(node)
        try:
            self._post(node, encode("open", body, i=number, m=method))
            item = await self._first(incoming, deadline_s)
            while item is not None:
                yield item
                self._consumed(number, incoming, len(item))
                item = await _next(incoming)
        finally:
            if self._incoming.pop(number, None) is not None:
                self._send(node, encode("close", i=number))

    def received(self, sender: NodeId, kind: str, head: Head, body: bytes) -> bool:
        """Whether this kind of frame is for `Peers`."""
        handle = {
            "ask": self._on_ask,
            "answer": self._on_answer,
            "refuse": self._on_refuse,
            "open": self._on_open,
            "piece": self._on_piece,
            "end": self._on_end,
            "credit": self._on_credit,
            "close": self._on_close,
        }.get(kind)
        number = head.get("i")
        if handle is None or not isinstance(number, int):
            return False
        handle(sender, number, head, body)
        return True

    def lost(self, node: NodeId) -> None:
        """Fail every call to this node, and stop the streams to it."""
        for asked, answer in self._asked.values():
            if asked == node and not answer.done():
                answer.set_exception(_lost(node))
        for incoming in self._incoming.values():
            if incoming.node == node:
                incoming.pieces.put_nowait(_lost(node))
        for (asker, _), outgoing in self._outgoing.items():
            if asker == node:
                outgoing.task.cancel()

    async def stop(self) -> None:
        """Cancel every call and stream that this node serves."""
        tasks = [*self._answering, *(outgoing.task for outgoing in self._outgoing.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Calls of this node.

    async def _first(self, incoming: _Incoming, deadline_s: float) -> bytes | None:
        try:
            async with asyncio.timeout(deadline_s):
                return await _next(incoming)
        except TimeoutError:
            raise silent(incoming.node, deadline_s) from None

    def _consumed(self, number: int, incoming: _Incoming, size: int) -> None:
        incoming.consumed += size + PIECE_COST
        if incoming.consumed >= WINDOW_BYTES // 4:
            self._send(incoming.node, encode("credit", i=number, n=incoming.consumed))
            incoming.consumed = 0

    def _on_answer(self, sender: NodeId, number: int, _head: Head, body: bytes) -> None:
        asked, answer = self._asked.get(number, (None, None))
        if asked == sender and answer is not None and not answer.done():
            answer.set_result(body)

    def _on_refuse(self, sender: NodeId, number: int, head: Head, body: bytes) -> None:
        refusal = PeerRefused(sender, str(head.get("why")), str(head.get("message")), body)
        asked, answer = self._asked.get(number, (None, None))
        if asked == sender and answer is not None and not answer.done():
            answer.set_exception(refusal)
        self._end(sender, number, refusal)

    def _on_piece(self, sender: NodeId, number: int, head: Head, body: bytes) -> None:
        incoming = self._incoming.get(number)
        if incoming is None or incoming.node != sender:
            self._send(sender, encode("close", i=number))
        elif head.get("q") != incoming.next_seq:
            message = f"a part of the stream from {sender} was lost"
            self._end(sender, number, PeerGone(sender, message))
            self._send(sender, encode("close", i=number))
        else:
            incoming.next_seq += 1
            incoming.pieces.put_nowait(body)

    def _on_end(self, sender: NodeId, number: int, _head: Head, _body: bytes) -> None:
        self._end(sender, number, None)

    def _end(self, sender: NodeId, number: int, why: PeerError | None) -> None:
        incoming = self._incoming.get(number)
        if incoming is not None and incoming.node == sender:
            del self._incoming[number]
            incoming.pieces.put_nowait(why)

    # This node answers.

    def _on_ask(self, sender: NodeId, number: int, head: Head, body: bytes) -> None:
        answer = self.answers.get(str(head.get("m")))

        async def work() -> None:
            if answer is None:
                raise unknown_method(self._node_id, str(head.get("m")))
            async with asyncio.timeout(float(head.get("s", 60.0))):
                self._send(sender, encode("answer", await answer(sender, body), i=number))

        task = asyncio.create_task(self._guarded(sender, number, work()))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _on_open(self, sender: NodeId, number: int, head: Head, body: bytes) -> None:
        if (sender, number) in self._outgoing:
            return
        task = asyncio.create_task(
            self._guarded(sender, number, self._feed(sender, number, str(head.get("m")), body))
        )
        self._outgoing[sender, number] = _Outgoing(task)
        task.add_done_callback(lambda _: self._outgoing.pop((sender, number), None))

    async def _feed(self, asker: NodeId, number: int, method: str, body: bytes) -> None:
        feed = self.feeds.get(method)
        if feed is None:
            raise unknown_method(self._node_id, method)
        outgoing = self._outgoing[asker, number]
        pieces = feed(asker, body)
        seq = 0
        async with closing(pieces):
            async for piece in pieces:
                cost = len(piece) + PIECE_COST
                while outgoing.unread and outgoing.unread + cost > WINDOW_BYTES:
                    outgoing.room.clear()
                    await outgoing.room.wait()
                outgoing.unread += cost
                self._post(asker, encode("piece", piece, i=number, q=seq))
                seq += 1
        self._post(asker, encode("end", i=number))

    async def _guarded(self, asker: NodeId, number: int, work: Coroutine[Any, Any, None]) -> None:
        """Report an error while answering to the caller."""
        try:
            await work
        except PeerRefused as refusal:
            self._refuse(asker, number, refusal.kind, str(refusal), refusal.data)
        except TimeoutError:
            log.debug("an answer to %s came too late", asker)
        except Exception as error:
            log.exception("a question of %s failed", asker)
            self._refuse(asker, number, INTERNAL, f"{type(error).__name__}: {error}")

    def _refuse(
        self, asker: NodeId, number: int, kind: str, message: str, data: bytes = b"{}"
    ) -> None:
        self._send(asker, encode("refuse", data, i=number, why=kind, message=message))

    def _on_credit(self, sender: NodeId, number: int, head: Head, _body: bytes) -> None:
        outgoing = self._outgoing.get((sender, number))
        if outgoing is not None:
            outgoing.unread = max(0, outgoing.unread - int(head.get("n", 0)))
            outgoing.room.set()

    def _on_close(self, sender: NodeId, number: int, _head: Head, _body: bytes) -> None:
        outgoing = self._outgoing.get((sender, number))
        if outgoing is not None:
            outgoing.task.cancel()

    def _post(self, node: NodeId, frame: bytes) -> None:
        if not self._send(node, frame):
            raise PeerRefused(node, OVERLOADED, f"too much waits to be sent to {node}")

    def _check_member(self, node: NodeId) -> None:
        if all(peer.node_id != node for peer in self._here()):
            raise gone(node)


async def _next(incoming: _Incoming) -> bytes | None:
    item = await incoming.pieces.get()
    if isinstance(item, PeerError):
        raise item
    return item


def _lost(node: NodeId) -> PeerGone:
    return PeerGone(node, f"{node} was lost")
