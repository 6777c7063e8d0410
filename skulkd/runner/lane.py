"""Rows that take their steps together: some read their prompts, some decode.

A pipeline runs several lanes in turns, so that every stage has work while others compute; one
rank alone needs only one. Every rank of a group keeps the same rows in the same lanes.
"""

from typing import Any, NamedTuple

import mlx.core as mx

from skulkd.runner.caches import joined, split_off
from skulkd.runner.reading import Kept, Reading, Wait, filtered, wait_for
from skulkd.runner.rows import Drawn, Row, likely
from skulkd.runner.seats import Next, Seat


class Progress(NamedTuple):
    """How many tokens of a prompt are in the caches. `ready`: all but the last; it decodes now."""

    uid: int
    done: int
    ready: bool


class Lane:
    """`wait` waits for an array; the name says what for."""

    def __init__(self, seat: Seat, wait: Wait = wait_for) -> None:
        self._seat = seat
        self._wait = wait
        self._waiting: list[tuple[Row, list[Any]]] = []
        self._reading = Reading(seat)
        self._rows: list[Row] = []
        self._caches: list[Any] = []
        self._next = _nothing()

    # --- who is here ---

    @property
    def uids(self) -> list[int]:
        waiting = [row for row, _ in self._waiting]
        return [row.uid for row in (*self._rows, *self._reading.rows, *waiting)]

    def __len__(self) -> int:
        return len(self._rows) + self.prompts

    @property
    def prompts(self) -> int:
        """Rows whose prompt is not read yet."""
        return len(self._reading.rows) + len(self._waiting)

    @property
    def unread(self) -> list[int]:
        """How many tokens are still to be read, of every prompt."""
        waiting = [row for row, _ in self._waiting]
        return [len(row.todo) for row in (*self._reading.rows, *waiting)]

    @property
    def owes(self) -> bool:
        """Whether a first token is under way: somebody waits for it."""
        return bool(self._owed())

    def _owed(self) -> list[Row]:
        return [row for row in self._rows if row.eager and not row.fresh and not row.read]

    @property
    def steps(self) -> bool:
        """Whether the next `decode` queues a step and does not only read the last one."""
        return not self.owes and any(row.left > 0 for row in self._rows)

    def add(self, row: Row, caches: list[Any]) -> None:
        """One more row; its caches hold `row.tokens`."""
        row.inside = len(row.tokens)
        self._waiting.append((row, caches))

    def kept(self, uid: int) -> Kept:
        """What is computed of a row so far."""
        for at, row in enumerate(self._rows):
            if row.uid == uid:
                return Kept([cache.extract(at) for cache in self._caches], row.tokens[: row.inside])
        for at, row in enumerate(self._reading.rows):
            if row.uid == uid:
                return self._reading.kept(at)
        row, single = next(item for item in self._waiting if item[0].uid == uid)
        return Kept(single, row.tokens[: row.inside])

    def ends_with(self, uids: set[int]) -> bool:
        """Whether these are all that decode here, and a token of theirs is under way."""
        return all(row.uid in uids for row in self._rows) and not all(r.read for r in self._rows)

    def settle(self) -> None:
        """Make sure that what the others sent for the next step is here."""
        if not self._rows:
            return
        for name, array in self._next.waits:
            self._wait(name, array)
        if self._seat.knows:
            mx.eval(self._next.tokens)
            if self._next.table is not None:
                mx.eval(self._next.table)
        self._next = self._next._replace(waits=())

    def drop(self, uids: set[int]) -> None:
        """Let rows go, wherever they are. What `ends_with` them must be settled."""
        self._waiting = [item for item in self._waiting if item[0].uid not in uids]
        self._reading.drop(uids)
        staying = [at for at, row in enumerate(self._rows) if row.uid not in uids]
        if len(staying) < len(self._rows):
            self._keep(staying)

    def give(self, uids: set[int], other: "Lane") -> None:
        """Move decoding rows to another lane. Both are settled."""
        leave = [at for at, row in enumerate(self._rows) if row.uid in uids]
        keep = [at for at, row in enumerate(self._rows) if row.uid not in uids]
        if not leave or not keep:
            return
        tokens, table = self._next.tokens, self._next.table
        moved = Next(tokens[mx.array(leave)], None if table is None else table[mx.array(leave)])
        other._next = _concatenated(other._next, moved, len(other._rows))
        other._rows += [self._rows[at] for at in leave]
        other._caches = joined(other._caches, split_off(self._caches, keep, leave))
        self._rows = [self._rows[at] for at in keep]
        self._next = Next(tokens[mx.array(keep)], None if table is None else table[mx.array(keep)])

    @property
    def movable(self) -> list[int]:
        """Rows that `give` can move."""
        return [row.uid for row in self._rows]

    # --- steps ---

    def decode(self) -> list[Drawn]:
        """Queue one more step for every decoding row, then read what the step before drew.

        A row's first token is read before another step is queued: queueing takes as long as the
        step before it, and somebody waits for that token.
        """
        rows, current = self._rows, self._next
        if self.owes:
            return self._read_tokens(rows, current)
        unread = [row for row in rows if not row.read]
        launched = any(row.left > 0 for row in rows)
        if launched:
            self._next = self._seat.launch(current, self._caches, rows)
            for row in rows:
                row.left -= 1
                row.inside += 1
        else:
            # All have what they may get: they only wait to be dropped.
            self._next = current._replace(waits=())
        drawn = self._read_tokens(unread, current) if unread else []
        if launched:
            for row in rows:
                row.read = False
        return drawn

    def first_tokens(self) -> list[Drawn]:
        """Read the first tokens that are under way, and nothing of the other rows.

        Those have had a token in this turn, and one of them may have ended with it.
        """
        return self._read_tokens(self._owed(), self._next)

    def _read_tokens(self, wanted: list[Row], current: Next) -> list[Drawn]:
        """Wait for a step's tokens and hand them out to the rows that want them."""
        for name, array in current.waits:
            self._wait(name, array)
        values: Any = None
        table: Any = None
        if self._seat.knows:
            self._wait("pipeline_last_eval_all_gather", current.tokens)
            values = current.tokens.tolist()
            table = None if current.table is None else current.table.tolist()
        drawn = [
            _drawn(row, None if values is None else values[at], table and table[at])
            for at, row in enumerate(self._rows)
            if not row.read and row in wanted
        ]
        for row in wanted:
            row.read = True
        return [item for item in drawn if item is not None]

    def read_prompts(self, most: int, size: int) -> list[Progress]:
        """Read up to `size` tokens of up to `most` prompts. Rows that are through decode next."""
        room = max(0, most - len(self._reading.rows))
        starting, self._waiting = self._waiting[:room], self._waiting[room:]
        if starting:
            self._reading.add(starting)
        ready = self._start_decoding()
        if self._reading.rows:
            self._reading.read(size, self._wait)
            ready += self._start_decoding()
        return [_progress(row) for row in (*ready, *self._reading.rows)]

    def _start_decoding(self) -> list[Row]:
        """Move the rows whose prompts are read to the decoding ones."""
        rows, caches = self._reading.take_ready()
        if rows:
            first = Next(mx.array([row.todo[0] for row in rows], mx.uint32), None)
            self._next = _concatenated(self._next, first, len(self._rows))
            self._caches = joined(self._caches, caches)
            self._rows = [*self._rows, *rows]
        return rows

    # --- inside ---

    def _keep(self, staying: list[int]) -> None:
        self._rows = [self._rows[at] for at in staying]
        self._caches = filtered(self._caches, staying)
        if not staying:
            self._next = _nothing()
            return
        index = mx.array(staying, mx.int32)
        tokens, table, waits = self._next
        self._next = Next(tokens[index], None if table is None else table[index], waits)


def _nothing() -> Next:
    return Next(mx.zeros((0,), mx.uint32), None)


def _concatenated(some: Next, more: Next, rows: int) -> Next:
    """Inputs of both; rows without a line in a table get an empty one."""
    if not rows:
        return more
    tokens = mx.concatenate([some.tokens, more.tokens])
    if some.table is None and more.table is None:
        return Next(tokens, None, some.waits)
    table = mx.concatenate([_table(some, more), _table(more, some)])
    return Next(tokens, table, some.waits)


def _table(inputs: Next, other: Next) -> mx.array:
    """Its table; one of zeros, as wide as the other's, when it has none."""
    if inputs.table is not None:
        return inputs.table
    width = 0 if other.table is None else other.table.shape[1]
    return mx.zeros((inputs.tokens.shape[0], width))


def _progress(row: Row) -> Progress:
    return Progress(row.uid, len(row.tokens), len(row.todo) == 1)


def _drawn(row: Row, token: int | None, line: list[float] | None) -> Drawn | None:
    # Which token it was does not matter where nobody knows; how many there are does.
    row.tokens.append(token or 0)
    if row.fresh:
        # This was the prompt's last token: it is not part of the answer.
        row.fresh = False
        return None
    row.eager = False
    probable = None
    if row.rivals is not None and line is not None:
        probable = likely(line, row.rivals)
    return Drawn(row.uid, token, probable)
