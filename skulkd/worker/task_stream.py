"""The output of one request: a bounded buffer between the supervisor and the client's reader.

Writing never blocks; the task table cancels a request whose output does not fit.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from skulkd.runner.protocol import Output, PrefillProgress
from skulkd.wire.chat import GenerationStats, Usage
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import TaskStatus

INVALID_REQUEST = "invalid_request_error"
RUNNER_CRASHED = "runner_crashed"
SLOW_READER = "slow_reader"
INSTANCE_DELETED = "instance_deleted"
INSTANCE_LOST = "instance_lost"
NODE_STOPPING = "node_stopping"
_FINAL = frozenset({INVALID_REQUEST, SLOW_READER})


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """The last item of every stream."""

    status: TaskStatus
    error_type: str | None = None
    error_message: str | None = None
    usage: Usage | None = None
    stats: GenerationStats | None = None

    @property
    def retryable(self) -> bool:
        """Whether another request may succeed; a deleted instance may not be the only one."""
        if self.error_type == INSTANCE_DELETED:
            return True
        return self.status in {"Failed", "TimedOut"} and self.error_type not in _FINAL


class TaskStream:
    """Items in order, then `TaskEnded`. For one reader. `aclose` cancels the task."""

    def __init__(self, task_id: TaskId, limit_bytes: int, cancel: Callable[[], object]) -> None:
        self.task_id = task_id
        self._limit_bytes = limit_bytes
        self.cancel = cancel
        self._items: deque[tuple[Output | PrefillProgress, int]] = deque()
        self._bytes = 0
        self._ended: TaskEnded | None = None
        self._usage: Usage | None = None
        self._stats: GenerationStats | None = None
        self._changed = asyncio.Event()
        self._closed = False
        self._watch: Callable[[Output | PrefillProgress], None] | None = None

    def watch(self, watch: Callable[[Output | PrefillProgress], None]) -> None:
        """Call `watch` with every item as it arrives, and now with those already buffered."""
        for item, _ in self._items:
            watch(item)
        self._watch = watch

    def push(self, item: Output | PrefillProgress, size_bytes: int) -> bool:
        """False, and nothing added, when too much is unread."""
        if self._closed:
            return True
        if self._items and self._bytes + size_bytes > self._limit_bytes:
            return False
        if isinstance(item, Output):
            self._usage = item.usage or self._usage
            self._stats = item.stats or self._stats
        self._items.append((item, size_bytes))
        self._bytes += size_bytes
        if self._watch is not None:
            self._watch(item)
        self._changed.set()
        return True

    def end(self, ended: TaskEnded) -> None:
        """The reader gets unread items first."""
        self._ended = replace(
            ended, usage=ended.usage or self._usage, stats=ended.stats or self._stats
        )
        self._changed.set()

    @property
    def ready(self) -> bool:
        """Whether the next item can be read without waiting."""
        return not self._closed and (bool(self._items) or self._ended is not None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Output | PrefillProgress | TaskEnded:
        while not self._closed:
            if self._items:
                item, size_bytes = self._items.popleft()
                self._bytes -= size_bytes
                return item
            if self._ended is not None:
                self._closed = True
                return self._ended
            self._changed.clear()
            # No timeout: the supervisor ends every stream, at the latest by its deadlines.
            await self._changed.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop reading and cancel the task unless it has ended."""
        if not self._closed:
            self._closed = True
            self._items.clear()
            self._changed.set()
            if self._ended is None:
                self.cancel()
