"""The send queue of one node: bounded, with its own thread.

A node that is slow or frozen blocks only its own thread.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from skulkd.wire.ids import NodeId

MAX_BYTES = 64 * 1024 * 1024
IDLE_S = 20.0

log = logging.getLogger(__name__)


class SendQueue:
    """Keeps the order; the thread ends when it has been idle for a while."""

    def __init__(self, node: NodeId, send: Callable[[NodeId, bytes], None]) -> None:
        self._node = node
        self._send = send
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._bytes = 0
        self._running = False
        self._closed = False

    def put(self, body: bytes) -> bool:
        """Never blocks; False when the queue is full, or closed."""
        with self._lock:
            if self._closed or (self._bytes and self._bytes + len(body) > MAX_BYTES):
                return False
            self._bytes += len(body)
            self._waiting.put(body)
            start, self._running = not self._running, True
        if start:
            name = f"to {self._node}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        return True

    def close(self) -> None:
        """Drop what is queued and end the thread."""
        with self._lock:
            self._closed = True
            self._waiting.put(None)

    def _work(self) -> None:
        while True:
            try:
                body = self._waiting.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._running = False
                        return
                continue
            if body is None or self._closed:
                return
            try:
                self._send(self._node, body)
            except Exception:
                # Without this thread nothing would be sent to the node again.
                log.exception("sending to %s failed", self._node)
            with self._lock:
                self._bytes -= len(body)
