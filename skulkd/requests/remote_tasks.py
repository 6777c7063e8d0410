"""Requests that another node's worker answers: both ends of `task.run` between two daemons.

The asking node gets an ordinary `TaskStream`, so its callers do not know where a model runs. The
first piece confirms that the task was accepted; a refusal comes instead of it. Closing the
stream ends the task on the other node.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from skulkd.peers import PeerError, PeerRefused, Peers
from skulkd.runner.protocol import GenerationOptions, Output, PrefillProgress, RunTask
from skulkd.wire.base import TaggedModel, VariantUnion
from skulkd.wire.chat import GenerationStats, Usage
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.tasks import ServedTask, TaskStatus, TextEmbedding, TextGeneration
from skulkd.worker.refusals import QueueFull, RequestTooLarge, WorkerRefusal
from skulkd.worker.task_stream import INSTANCE_LOST, SLOW_READER, TaskEnded, TaskStream
from skulkd.worker.worker import Worker

METHOD = "task.run"
# The cluster notices a frozen node before this; the limit is for one that does not answer at all.
ACCEPT_DEADLINE_S = 8.0
STREAM_BYTES = 8 * 1024 * 1024
# Items that have arrived meanwhile are sent together, up to this many.
_PIECE_ITEMS = 64

_QUEUE_FULL = "queue_full"
_TOO_LARGE = "request_too_large"
_NOT_READY = "not_ready"

_log = logging.getLogger(__name__)


class NotAccepted(Exception):
    """The other node does not accept the task now; another node may, or the same one later.

    `silent` when it did not refuse itself: it was lost, or did not answer in time.
    """

    def __init__(self, message: str, *, silent: bool = False) -> None:
        super().__init__(message)
        self.silent = silent


class RemoteTaskEnded(TaggedModel):
    """The last item of a stream."""

    status: TaskStatus
    error_type: str | None = None
    error_message: str | None = None
    usage: Usage | None = None
    stats: GenerationStats | None = None


Item = Annotated[Output | PrefillProgress | RemoteTaskEnded, VariantUnion()]
_PIECE: TypeAdapter[list[Output | PrefillProgress | RemoteTaskEnded]] = TypeAdapter(list[Item])


# --- the node that answers ---


def serve_tasks(peers: Peers, worker: Worker) -> None:
    """Let other nodes give requests to this one's worker."""

    async def feed(asker: NodeId, body: bytes) -> AsyncIterator[bytes]:
        stream = await _accept(peers.node_id, worker, body)
        _log.debug("accepted task %s from %s", stream.task_id, asker)
        try:
            yield b"[]"
            async for item in stream:
                piece = [item]
                while stream.ready and len(piece) < _PIECE_ITEMS:
                    piece.append(await anext(stream))
                yield _encode(piece)
        finally:
            await stream.aclose()

    peers.serve_stream(METHOD, feed)


async def _accept(own: NodeId, worker: Worker, body: bytes) -> TaskStream:
    try:
        order = RunTask.model_validate_json(body)
    except ValidationError as error:
        raise PeerRefused(own, "bad_request", f"no request of this version: {error}") from error
    if not isinstance(order.task, TextGeneration | TextEmbedding):
        kind = type(order.task).__name__
        raise PeerRefused(own, "bad_request", f"{kind} is no request of a client")
    try:
        return await worker.submit(order.task, order.generation or GenerationOptions())
    except QueueFull as refusal:
        data = {"waiting": refusal.waiting, "retry_after_s": refusal.retry_after_s}
        raise PeerRefused(own, _QUEUE_FULL, str(refusal), json.dumps(data).encode()) from refusal
    except RequestTooLarge as refusal:
        why = json.dumps({"why": refusal.why}).encode()
        raise PeerRefused(own, _TOO_LARGE, str(refusal), why) from refusal
    except WorkerRefusal as refusal:
        raise PeerRefused(own, _NOT_READY, str(refusal)) from refusal


def _encode(piece: list[Output | PrefillProgress | TaskEnded]) -> bytes:
    parts = [
        (
            RemoteTaskEnded(
                status=item.status,
                error_type=item.error_type,
                error_message=item.error_message,
                usage=item.usage,
                stats=item.stats,
            )
            if isinstance(item, TaskEnded)
            else item
        ).model_dump_json(exclude_defaults=True)
        for item in piece
    ]
    return f"[{','.join(parts)}]".encode()


# --- the node that asks ---


class RemoteTasks:
    """Workers of other nodes."""

    def __init__(self, peers: Peers, limit_bytes: int = STREAM_BYTES) -> None:
        self._peers = peers
        self._limit_bytes = limit_bytes
        self._pumps: set[asyncio.Task[None]] = set()

    async def submit(
        self, node: NodeId, task: ServedTask, generation: GenerationOptions
    ) -> TaskStream:
        """The stream of a task that the other node accepted.

        Raises NotAccepted, QueueFull and RequestTooLarge.
        """
        body = RunTask(task=task, generation=generation).model_dump_json(exclude_defaults=True)
        # A node that is lost has no name any more.
        name = next((peer.name for peer in self._peers.others() if peer.node_id == node), node)
        pieces = self._peers.stream(node, METHOD, body.encode(), deadline_s=ACCEPT_DEADLINE_S)
        try:
            if await anext(pieces, None) is None:
                raise NotAccepted(f"{name} ended the task before it began")
        except PeerRefused as refusal:
            raise _refusal(refusal, task.instance_id) from refusal
        except PeerError as error:
            raise NotAccepted(f"is on {name}, which did not answer", silent=True) from error

        def hang_up() -> None:
            pump.cancel()

        stream = TaskStream(task.task_id, self._limit_bytes, hang_up)
        pump = asyncio.create_task(_pump(name, pieces, stream))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)
        return stream


async def _pump(name: str, pieces: AsyncIterator[bytes], stream: TaskStream) -> None:
    """Never waits for the reader, so one slow client does not delay others."""
    try:
        ended = await _copy(pieces, stream) or _lost(name, "its answer broke off")
    except PeerError as error:
        ended = _lost(name, str(error))
    except ValidationError as error:
        ended = TaskEnded("Failed", None, f"node {name} sent nonsense: {error}")
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
    stream.end(ended)


async def _copy(pieces: AsyncIterator[bytes], stream: TaskStream) -> TaskEnded | None:
    """The end that the other node sent; None when it sent none."""
    async for piece in pieces:
        items = _PIECE.validate_json(piece)
        for item in items:
            if isinstance(item, RemoteTaskEnded):
                return TaskEnded(**_fields(item))
            if not stream.push(item, len(piece) // len(items)):
                message = "the answer was read too slowly, so it was cut off"
                return TaskEnded("Failed", SLOW_READER, message)
    return None


def _lost(name: str, why: str) -> TaskEnded:
    message = f"node {name} was lost while it answered ({why}); ask again"
    return TaskEnded("Failed", INSTANCE_LOST, message)


def _fields(item: RemoteTaskEnded) -> dict[str, Any]:
    return {name: getattr(item, name) for name in RemoteTaskEnded.model_fields}


def _refusal(refusal: PeerRefused, instance_id: InstanceId) -> Exception:
    data = json.loads(refusal.data)
    if refusal.kind == _QUEUE_FULL:
        return QueueFull(instance_id, int(data["waiting"]), int(data["retry_after_s"]))
    if refusal.kind == _TOO_LARGE:
        return RequestTooLarge(str(data["why"]))
    return NotAccepted(str(refusal))
