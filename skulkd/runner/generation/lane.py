"""Rows that take their steps together: some read their prompts, some decode.

A pipeline runs several lanes in turns, so that every stage has work; a single rank needs one.
Every rank of a group keeps the same rows in the same lanes.
"""

from typing import Any, NamedTuple

import mlx.core as mx

from skulkd.runner.generation.executors import Executor, StepResult
from skulkd.runner.generation.prefill import CachedSequence, Evaluate, PrefillBatch
from skulkd.runner.generation.rows import Row, SampledToken, logprobs_of
from skulkd.runner.model.caches import filtered, joined, split_off


class PromptProgress(NamedTuple):
    """How many tokens of a prompt are in the caches. `ready`: all but the last; it decodes now."""

    uid: int
    done: int
    ready: bool


class Lane:
    def __init__(self, executor: Executor, wait: Evaluate) -> None:
        self._executor = executor
        self._wait = wait
        self._waiting: list[tuple[Row, list[Any]]] = []
        self._prefill = PrefillBatch(executor)
        self._rows: list[Row] = []
        self._caches: list[Any] = []
        self._next = _no_rows()

    @property
    def uids(self) -> list[int]:
        waiting = [row for row, _ in self._waiting]
        return [row.uid for row in (*self._rows, *self._prefill.rows, *waiting)]

    def __len__(self) -> int:
        return len(self._rows) + self.prompts

    @property
    def prompts(self) -> int:
        """Rows whose prompt is not read yet."""
        return len(self._prefill.rows) + len(self._waiting)

    @property
    def unread(self) -> list[int]:
        """How many tokens are still to be read, of every prompt."""
        waiting = [row for row, _ in self._waiting]
        return [len(row.unread) for row in (*self._prefill.rows, *waiting)]

    @property
    def first_token_queued(self) -> bool:
        """Whether a first token is being computed: a client waits for it."""
        return bool(self._awaiting_first())

    def _awaiting_first(self) -> list[Row]:
        return [r for r in self._rows if r.awaits_first and not r.starting and not r.read]

    @property
    def will_step(self) -> bool:
        """Whether the next `decode` queues a step and does not only read the last one."""
        return not self.first_token_queued and any(row.remaining > 0 for row in self._rows)

    def add(self, row: Row, caches: list[Any]) -> None:
        """One more row; its caches hold `row.tokens`."""
        row.cached = len(row.tokens)
        self._waiting.append((row, caches))

    def cached(self, uid: int) -> CachedSequence:
        """What is computed of a row so far."""
        for at, row in enumerate(self._rows):
            if row.uid == uid:
                caches = [cache.extract(at) for cache in self._caches]
                return CachedSequence(caches, row.tokens[: row.cached])
        for at, row in enumerate(self._prefill.rows):
            if row.uid == uid:
                return self._prefill.cached(at)
        row, single = next(item for item in self._waiting if item[0].uid == uid)
        return CachedSequence(single, row.tokens[: row.cached])

    def ends_with(self, uids: set[int]) -> bool:
        """Whether these are all that decode here, and a token of theirs was not read yet."""
        return all(row.uid in uids for row in self._rows) and not all(r.read for r in self._rows)

    def settle(self) -> None:
        """Receive what the other ranks have sent for the next step."""
        if not self._rows:
            return
        for name, array in self._next.waits:
            self._wait(name, array)
        if self._executor.sees_tokens:
            mx.eval(self._next.tokens)
            if self._next.table is not None:
                mx.eval(self._next.table)
        self._next = self._next._replace(waits=())

    def drop(self, uids: set[int]) -> None:
        """Remove rows. A lane that `ends_with` them must be settled."""
        self._waiting = [item for item in self._waiting if item[0].uid not in uids]
        self._prefill.drop(uids)
        staying = [at for at, row in enumerate(self._rows) if row.uid not in uids]
        if len(staying) < len(self._rows):
            self._keep(staying)

    def move(self, uids: set[int], other: "Lane") -> None:
        """Move decoding rows to another lane. Both are settled."""
        leave = [at for at, row in enumerate(self._rows) if row.uid in uids]
        keep = [at for at, row in enumerate(self._rows) if row.uid not in uids]
        if not leave or not keep:
            return
        tokens, table = self._next.tokens, self._next.table
        moved = StepResult(
            tokens[mx.array(leave)], None if table is None else table[mx.array(leave)]
        )
        other._next = _concatenated(other._next, moved, len(other._rows))
        other._rows += [self._rows[at] for at in leave]
        other._caches = joined(other._caches, split_off(self._caches, keep, leave))
        self._rows = [self._rows[at] for at in keep]
        self._next = StepResult(
            tokens[mx.array(keep)], None if table is None else table[mx.array(keep)]
        )

    @property
    def movable(self) -> list[int]:
        """Rows that `move` can move."""
        return [row.uid for row in self._rows]

    # --- steps ---

    def decode(self) -> list[SampledToken]:
        """Queue one more step for every decoding row, then read the tokens of the step before.

        A row's first token is read before another step is queued, because queueing can wait for
        the step before, and a client waits for that token.
        """
        rows, current = self._rows, self._next
        if self.first_token_queued:
            return self._read_tokens(rows, current)
        unread = [row for row in rows if not row.read]
        queued = any(row.remaining > 0 for row in rows)
        if queued:
            self._next = self._executor.decode(current, self._caches, rows)
            for row in rows:
                row.remaining -= 1
                row.cached += 1
        else:
            # All rows have reached their limits and wait to be dropped.
            self._next = current._replace(waits=())
        sampled = self._read_tokens(unread, current) if unread else []
        if queued:
            for row in rows:
                row.read = False
        return sampled

    def first_tokens(self) -> list[SampledToken]:
        """Read only first tokens that are being computed.

        The other rows have had a token in this turn, and may have ended with it.
        """
        return self._read_tokens(self._awaiting_first(), self._next)

    def _read_tokens(self, wanted: list[Row], current: StepResult) -> list[SampledToken]:
        """Wait for a step's tokens and give them to these rows."""
        for name, array in current.waits:
            self._wait(name, array)
        values: Any = None
        table: Any = None
        if self._executor.sees_tokens:
            self._wait("pipeline_last_eval_all_gather", current.tokens)
            values = current.tokens.tolist()
            table = None if current.table is None else current.table.tolist()
        sampled = [
            _sampled(row, None if values is None else values[at], table and table[at])
            for at, row in enumerate(self._rows)
            if not row.read and row in wanted
        ]
        for row in wanted:
            row.read = True
        return [item for item in sampled if item is not None]

    def read_prompts(self, most: int, size: int) -> list[PromptProgress]:
        """Read up to `size` tokens of up to `most` prompts; complete ones decode next."""
        room = max(0, most - len(self._prefill.rows))
        starting, self._waiting = self._waiting[:room], self._waiting[room:]
        if starting:
            self._prefill.add(starting)
        ready = self._start_decoding()
        if self._prefill.rows:
            self._prefill.read(size, self._wait)
            ready += self._start_decoding()
        return [_progress(row) for row in (*ready, *self._prefill.rows)]

    def _start_decoding(self) -> list[Row]:
        """Move the rows whose prompts are read to the decoding ones."""
        rows, caches = self._prefill.pop_ready()
        if rows:
            first = StepResult(mx.array([row.unread[0] for row in rows], mx.uint32), None)
            self._next = _concatenated(self._next, first, len(self._rows))
            self._caches = joined(self._caches, caches)
            self._rows = [*self._rows, *rows]
        return rows

    def _keep(self, staying: list[int]) -> None:
        self._rows = [self._rows[at] for at in staying]
        self._caches = filtered(self._caches, staying)
        if not staying:
            self._next = _no_rows()
            return
        index = mx.array(staying, mx.int32)
        tokens, table, waits = self._next
        self._next = StepResult(tokens[index], None if table is None else table[index], waits)


def _no_rows() -> StepResult:
    return StepResult(mx.zeros((0,), mx.uint32), None)


def _concatenated(some: StepResult, more: StepResult, rows: int) -> StepResult:
    """Inputs of both; rows without a line in a table get an empty one."""
    if not rows:
        return more
    tokens = mx.concatenate([some.tokens, more.tokens])
    if some.table is None and more.table is None:
        return StepResult(tokens, None, some.waits)
    table = mx.concatenate([_table(some, more), _table(more, some)])
    return StepResult(tokens, table, some.waits)


def _table(inputs: StepResult, other: StepResult) -> mx.array:
    """Its table; one of zeros, as wide as the other's, when it has none."""
    if inputs.table is not None:
        return inputs.table
    width = 0 if other.table is None else other.table.shape[1]
    return mx.zeros((inputs.tokens.shape[0], width))


def _progress(row: Row) -> PromptProgress:
    return PromptProgress(row.uid, len(row.tokens), len(row.unread) == 1)


def _sampled(row: Row, token: int | None, line: list[float] | None) -> SampledToken | None:
    # A rank that does not see tokens still counts them.
    row.tokens.append(token or 0)
    if row.starting:
        # This was the prompt's last token: it is not part of the answer.
        row.starting = False
        return None
    row.awaits_first = False
    logprobs = None
    if row.top_logprobs is not None and line is not None:
        logprobs = logprobs_of(line, row.top_logprobs)
    return SampledToken(row.uid, token, logprobs)
