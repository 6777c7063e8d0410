"""Which inputs are computed together. Pure.

Clients take turns, so that a long list does not delay a short one; inputs of similar length go
together, because all rows are padded to the longest.
"""

from collections import deque
from dataclasses import dataclass, field

from skulkd.wire.ids import TaskId

MAX_ROWS = 32
MAX_TOKENS = 2048
"""Padded tokens of one step: what a CPU does in a fraction of a second."""


@dataclass(frozen=True, slots=True)
class Row:
    """One input of a task."""

    task_id: TaskId
    index: int
    tokens: list[int]


@dataclass(slots=True)
class RowQueue:
    """Rows that are not computed yet, by task; the first task is next."""

    _tasks: deque[tuple[TaskId, deque[Row]]] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def add(self, task_id: TaskId, inputs: list[list[int]]) -> None:
        rows = [Row(task_id, index, tokens) for index, tokens in enumerate(inputs)]
        rows.sort(key=lambda row: len(row.tokens))
        self._tasks.append((task_id, deque(rows)))

    def remove(self, task_id: TaskId) -> None:
        self._tasks = deque(item for item in self._tasks if item[0] != task_id)

    def pop_batch(self, max_rows: int = MAX_ROWS, max_tokens: int = MAX_TOKENS) -> list[Row]:
        """The next rows: one of each task in turn, while they fit. At least one."""
        batch: list[Row] = []
        longest = 0
        turns = len(self._tasks)
        while turns and len(batch) < max_rows:
            task_id, rows = self._tasks[0]
            longest = max(longest, len(rows[0].tokens))
            if batch and longest * (len(batch) + 1) > max_tokens:
                break
            batch.append(rows.popleft())
            self._tasks.popleft()
            if rows:
                self._tasks.append((task_id, rows))
            turns = len(self._tasks)
        return batch
