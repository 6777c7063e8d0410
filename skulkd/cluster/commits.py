"""Commands on the master: decided in batches, on disk before they are applied and answered.

Group commit: commands that arrive while a batch is written form the next batch. A batch is decided
on a branch of the journal, so a command whose write fails never changes the state. The answer also
waits, for a bounded time, until one follower has confirmed that the command is on its disk.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from skulkd.cluster.core import Core
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.messages import JournalEntry, MasterSession, Stored
from skulkd.cluster.record_writer import RecordWriter, reason
from skulkd.cluster.redaction import redacted
from skulkd.peers import PeerRefused
from skulkd.wire.events import Event, InstanceCreated
from skulkd.wire.ids import NodeId

NOT_MASTER = "not_master"
INTERNAL = "internal_error"
STORAGE_FULL = "StorageFull"
STORAGE_FAILED = "StorageFailed"
CONFIRM_S = 1.0
"""How long a command waits for a follower; then the master's own disk is enough."""
DECIDE_S = 0.05
"""A batch is closed after this long, because deciding blocks the event loop."""
_FULL = {errno.ENOSPC, errno.EDQUOT}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decision:
    """The events and the answer of a command."""

    events: Sequence[Event]
    answer: bytes = b"{}"
    """JSON."""


Decide = Callable[[JournalReplica], Decision]
"""Decides without waiting and without changing the journal. Raises PeerRefused to refuse."""

Committed = tuple[int, bytes]
"""Index of the last event, and the answer."""


@dataclass(slots=True)
class _Order:
    """A command in progress."""

    command: str
    decide: Decide
    done: asyncio.Future[Committed]
    decision: Decision = field(default_factory=lambda: Decision(()))
    index: int = -1
    confirm_by: float = 0.0


class Commits:
    """Commits commands on the master; `stored` and `lost` report on followers."""

    def __init__(
        self, core: Core, writer: RecordWriter | None, applied: Callable[[], None]
    ) -> None:
        self._core = core
        self._writer = writer
        self._applied = applied
        self._orders: dict[str, _Order] = {}
        self._queue: list[_Order] = []
        self._batch: list[_Order] = []
        self._unconfirmed: list[_Order] = []
        self._job: asyncio.Task[None] | None = None
        self._confirmed: tuple[MasterSession | None, int] = (None, -1)
        """The newest index that is on a follower's disk, and in which session."""
        self._late: set[NodeId] = set()
        """Followers that did not confirm in time; not waited for until they confirm again."""

    async def commit(self, command: str, decide: Decide) -> Committed:
        """Raises PeerRefused. A command that is in progress already is not decided again."""
        order = self._orders.get(command)
        if order is None:
            order = self._new_order(command, decide)
            self._queue.append(order)
            self._start()
        return await asyncio.shield(order.done)

    async def confirm(self, command: str, index: int, answer: bytes) -> Committed:
        """The same guarantee for a command that an earlier master had applied."""
        order = self._orders.get(command)
        if order is None:
            order = self._new_order(command, lambda _: Decision(()))
            order.decision, order.index = Decision((), answer), index
            if self._writer is not None:
                try:
                    await self._writer.flush()
                except OSError as error:
                    self._refuse(order, self._storage_refusal(error))
            self._await_follower([order])
        return await asyncio.shield(order.done)

    def stored(self, node: NodeId, message: Stored) -> None:
        """A follower has written its journal, or failed to."""
        if message.session != self._core.session:
            return
        if message.problem:
            self._leave_out([node], f"cannot write to its disk: {message.problem}")
        else:
            if node in self._late:
                self._late.discard(node)
                log.info("%s confirms commands again", self._name(node))
            session, index = self._confirmed
            newer = max(index, message.index) if session == message.session else message.index
            self._confirmed = (message.session, newer)
        self._release()

    def lost(self, node: NodeId) -> None:
        self._late.discard(node)
        self._release()

    # Deciding and writing.

    def _new_order(self, command: str, decide: Decide) -> _Order:
        done: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        order = self._orders[command] = _Order(command, decide, done)

        def forget(done: asyncio.Future[Committed]) -> None:
            self._orders.pop(command, None)
            # Whoever sent the command may have stopped waiting.
            if not done.cancelled():
                done.exception()

        done.add_done_callback(forget)
        return order

    def _start(self) -> None:
        if self._job is None:
            self._job = asyncio.create_task(self._run(), name="commit")
            self._job.add_done_callback(self._ended)

    def _ended(self, job: asyncio.Task[None]) -> None:
        self._job = None
        error = None if job.cancelled() else job.exception()
        if error is not None or job.cancelled():
            log.error("committing failed", exc_info=error)
            left, self._queue = [*self._batch, *self._queue], []
            text = f"the command was not carried out: {error or 'cancelled'}"
            for order in left:
                self._refuse(order, self._refusal(INTERNAL, text))
        elif self._queue:
            self._start()

    async def _run(self) -> None:
        while self._queue:
            if self._writer is None:
                branch = self._core.journal.branch()
                self._decide_batch(branch)
                self._apply(branch.session, branch.head)
                continue
            async with self._writer.lock:
                await self._write_batch(self._writer)

    async def _write_batch(self, writer: RecordWriter) -> None:
        branch = self._core.journal.branch()
        alive = set(self._core.connected.alive())
        self._decide_batch(branch)
        if not self._batch:
            return
        try:
            await writer.write(branch.record())
        except OSError as error:
            for order in self._batch:
                self._refuse(order, self._storage_refusal(error))
        else:
            self._apply(branch.session, branch.head)
            self._lose_nodes(alive - set(self._core.connected.alive()))

    def _decide_batch(self, branch: JournalReplica) -> None:
        """Decide what is in the queue, each on the state that the ones before it leave."""
        self._batch = []
        ends = time.monotonic() + DECIDE_S
        while self._queue and time.monotonic() < ends:
            order = self._queue.pop(0)
            if self._core.leader is None:
                self._refuse(order, self._not_master())
                continue
            if self._decide(order, branch):
                for entry in _entries(order, branch.head):
                    branch.apply(entry)
                self._batch.append(order)

    def _decide(self, order: _Order, branch: JournalReplica) -> bool:
        try:
            decision = order.decide(branch)
        except PeerRefused as refusal:
            self._refuse(order, refusal)
            return False
        except Exception as error:
            log.exception("command %s failed", order.command)
            self._refuse(order, self._refusal(INTERNAL, f"{type(error).__name__}: {error}"))
            return False
        events = [redacted(event) for event in decision.events]
        order.decision = Decision(events, decision.answer)
        return True

    def _apply(self, session: MasterSession | None, head: int) -> None:
        """`head`: the index that was written."""
        batch, leader = self._batch, self._core.leader
        if leader is None or leader.session != session:
            # It is on this disk, but another node is the master now and decides it again.
            for order in batch:
                self._refuse(order, self._not_master())
            return
        for order in batch:
            answer = order.decision.answer.decode()
            order.index = leader.append(order.decision.events, order.command, answer)
        self._applied()
        if self._writer is not None and batch and batch[-1].index != head:
            # Other events were applied meanwhile: the index on disk must not be older than these.
            self._writer.save_now()
        self._await_follower(batch)

    def _lose_nodes(self, gone: set[NodeId]) -> None:
        """Report nodes that were lost during the write as lost to the instances placed on them."""
        leader = self._core.leader
        if leader is None or not gone:
            return
        used = {
            node
            for order in self._batch
            for event in order.decision.events
            if isinstance(event, InstanceCreated)
            for node in event.instance.shard_assignments.node_to_runner
        }
        for node in gone & used:
            leader.node_lost(node)

    # Followers.

    def _await_follower(self, batch: Sequence[_Order]) -> None:
        ends = time.monotonic() + CONFIRM_S
        for order in batch:
            order.confirm_by = ends
            if not order.done.done():
                self._unconfirmed.append(order)
        self._release()
        if self._unconfirmed:
            asyncio.get_running_loop().call_later(CONFIRM_S, self._expire)

    def _release(self) -> None:
        """Answer the commands that are confirmed, or that have no follower to wait for."""
        if not self._unconfirmed:
            return
        session, index = self._confirmed
        alone = self._writer is None or not self._awaited()
        waiting = []
        for order in self._unconfirmed:
            if self._core.leader is None:
                self._refuse(order, self._not_master())
            elif alone or (session == self._core.session and order.index <= index):
                if not order.done.done():
                    order.done.set_result((order.index, order.decision.answer))
            else:
                waiting.append(order)
        self._unconfirmed = waiting

    def _expire(self) -> None:
        if any(time.monotonic() >= order.confirm_by for order in self._unconfirmed):
            self._leave_out(self._awaited(), f"did not confirm a command within {CONFIRM_S:g} s")
            self._release()

    def _awaited(self) -> list[NodeId]:
        """Followers of this session that are expected to confirm."""
        core = self._core
        return [
            node
            for node, member in core.connected.members.items()
            if not member.silent
            and node not in self._late
            and member.heartbeat is not None
            and member.heartbeat.session == core.session
        ]

    def _leave_out(self, nodes: Sequence[NodeId], why: str) -> None:
        for node in nodes:
            if node not in self._late:
                self._late.add(node)
                log.warning(
                    "%s %s; commands do not wait for it until it confirms again",
                    self._name(node), why,
                )  # fmt: skip

    def _name(self, node: NodeId) -> str:
        return self._core.journal.names.get(node, str(node))

    # Refusals.

    def _refuse(self, order: _Order, refusal: PeerRefused) -> None:
        if not order.done.done():
            order.done.set_exception(refusal)

    def _refusal(self, kind: str, text: str, hints: Sequence[str] = ()) -> PeerRefused:
        data = json.dumps({"hints": list(hints)}).encode()
        return PeerRefused(self._core.node_id, kind, text, data)

    def _not_master(self) -> PeerRefused:
        return self._refusal(NOT_MASTER, f"{self._core.node_id} is not the master")

    def _storage_refusal(self, error: OSError) -> PeerRefused:
        name = self._core.connected.name
        text = f"the master {name} cannot write to its disk, nothing was changed: {reason(error)}"
        if error.filename:
            text += f": {error.filename}"
        kind = storage_kind(error)
        cure = "free disk space on" if kind == STORAGE_FULL else "fix the disk of"
        return self._refusal(kind, text, [f"{cure} {name}, then try again"])


def storage_kind(error: OSError) -> str:
    """The error code for a failed write."""
    return STORAGE_FULL if error.errno in _FULL else STORAGE_FAILED


def _entries(order: _Order, head: int) -> list[JournalEntry]:
    """The journal entries of a decided command."""
    events = order.decision.events
    last = len(events) - 1
    return [
        JournalEntry(head + 1 + number, event, order.command if number == last else None)
        for number, event in enumerate(events)
    ]
