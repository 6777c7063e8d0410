"""Ranks on several nodes that live and die together: the part that asks the other nodes.

Rank 0's node tells every rank how far it may go and hears where it is; `group_lead.py` and
`membership.py` decide. Every question has a deadline, and one frozen node delays no other.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TypeVar, assert_never

from pydantic import ValidationError

from skulkd.peers import PeerError, PeerRefused, Peers
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.runners import RunnerFailed
from skulkd.wire.topology import Topology
from skulkd.worker.causes import Blame, Ending, not_started
from skulkd.worker.group_lead import GroupLead, Seat
from skulkd.worker.group_link import Link
from skulkd.worker.group_messages import GOAL, REPORT, Goal, Report
from skulkd.worker.group_ports import NoAddress, PortHold, listen_addresses
from skulkd.worker.group_seat import GroupSeat
from skulkd.worker.launching import CannotLaunch, Prepared
from skulkd.worker.options import GroupLimits
from skulkd.worker.plan import EndAttempt, Enlist, Join, Prepare
from skulkd.worker.rdma_links import try_links
from skulkd.worker.slot import Slot
from skulkd.worker.task_stream import RUNNER_CRASHED, TaskEnded

_log = logging.getLogger(__name__)
M = TypeVar("M", Goal, Report)
_STOPPING = Ending("its node is stopping", restart_helps=True, blame=Blame.LOST)


@dataclass(frozen=True, slots=True)
class Hands:
    """What the worker does for its groups."""

    slots: Callable[[], Iterable[Slot]]
    begin: Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
    wake: Callable[[], None]
    prepare: Callable[[Slot], Awaitable[Prepared]]
    """Raises CannotLaunch."""
    topology: Callable[[], Topology]


class Groups:
    """`look` at every change; it starts what has to be told to other nodes."""

    def __init__(
        self,
        peers: Peers,
        hands: Hands,
        limits: GroupLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._peers = peers
        self._hands = hands
        self._limits = limits
        self._clock = clock
        self._links: dict[tuple[RunnerId, int], Link] = {}
        self._told: dict[RunnerId, Report] = {}
        self._telling: set[RunnerId] = set()
        peers.serve(GOAL, self._answer_goal)
        peers.serve(REPORT, self._answer_report)

    # --- for the worker ---

    def carry_out(
        self, slot: Slot, seat: GroupSeat, action: Enlist | Prepare | Join | EndAttempt
    ) -> None:
        """A step of the plan that has to do with other ranks."""
        match action:
            case Enlist():
                self._enlist(slot, seat)
            case Prepare():
                self._occupy(seat, self._prepare(slot, seat))
            case Join():
                self._occupy(seat, self._join(slot, seat, seat.membership.attempt))
            case EndAttempt():
                self._end_attempt(slot, seat, action.why)
            case _ as unreachable:
                assert_never(unreachable)

    def _enlist(self, slot: Slot, seat: GroupSeat) -> None:
        """A rank of this node; with rank 0 this node leads."""
        if seat.rank == 0:
            seats = [Seat(rank, node, self._name(node)) for rank, node in enumerate(seat.nodes)]
            seat.lead = GroupLead(seat.instance_id, seats, slot.crashes, self._limits, self._clock)
        self._hands.wake()

    def leader_lost(self, slot: Slot) -> str | None:
        """Why this rank is on its own, if it is."""
        seat = slot.seat
        if seat is None or seat.leader == self._peers.node_id or not seat.has_process:
            return None
        name = self._name(seat.leader)
        if all(peer.node_id != seat.leader for peer in self._peers.others()):
            return f"{name}, the node of rank 0, has left the cluster"
        silent_s = self._clock() - seat.membership.heard_at
        if silent_s > self._limits.lease_s:
            return f"{name}, the node of rank 0, has been silent for {silent_s:.0f} s"
        return None

    def look(self) -> float | None:
        """Say what is new to whom it concerns; when to look again at the latest."""
        due: list[float] = []
        slots = [(slot, slot.seat) for slot in self._hands.slots() if slot.seat is not None]
        for slot, seat in slots:
            if slot.stopping:
                continue
            self._report(slot, seat)
            if seat.lead is not None:
                seat.lead.look()
                seat.membership.obey(seat.lead.goal(0))
                self._conclude(slot, seat.lead)
                self._lead(slot, seat, seat.lead)
                due += [] if seat.lead.due is None else [seat.lead.due]
            self._show_cause(slot, seat)
        self._forget({slot.runner_id for slot, _ in slots if not slot.stopping})
        return min(due, default=None)

    def _end_attempt(self, slot: Slot, seat: GroupSeat, why: str | None) -> None:
        """Kill the process, at once."""
        if why is not None:
            seat.close(Ending(why, restart_helps=True, blame=Blame.LOST))
        if slot.supervisor is not None:
            slot.supervisor.abort()
        elif slot.job is not None:
            slot.job.cancel()

    async def leave(self) -> None:
        """This node stops: the other ranks must not wait for theirs."""
        told: list[Coroutine[None, None, object]] = []
        for slot in self._hands.slots():
            seat = slot.seat
            if seat is None:
                continue
            if seat.lead is not None:
                seat.lead.fail(0, _STOPPING)
                told += [
                    self._send(node, GOAL, seat.lead.goal(rank).model_dump_json())
                    for rank, node in enumerate(seat.nodes)
                    if rank > 0
                ]
            else:
                seat.close(_STOPPING)
                seat.has_process = False
                report = seat.report(type(slot.record.status).__name__)
                told.append(self._send(seat.leader, REPORT, report.model_dump_json()))
        self._forget(set())
        await asyncio.gather(*told)

    # --- one rank ---

    def _occupy(self, seat: GroupSeat, work: Coroutine[None, None, None]) -> None:
        async def occupied() -> None:
            try:
                await work
            finally:
                seat.busy = False
                self._hands.wake()

        seat.busy = True
        seat.work = self._hands.begin(occupied())

    async def _prepare(self, slot: Slot, seat: GroupSeat) -> None:
        try:
            seat.prepared = await self._hands.prepare(slot)
            slot.record.waiting.begin("ranks")
        except CannotLaunch as error:
            slot.refuse(not_started(str(error), restart_helps=error.later), later_s=5.0)

    async def _join(self, slot: Slot, seat: GroupSeat, attempt: int) -> None:
        try:
            prepared = await self._hands.prepare(slot)
            await try_links(slot.instance, seat.rank, self._hands.topology())
            port = PortHold(listen_addresses(slot.instance, seat.rank))
        except (CannotLaunch, NoAddress, OSError) as error:
            later = error.later if isinstance(error, CannotLaunch) else isinstance(error, OSError)
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            ending = not_started(why, restart_helps=later)
            if seat.membership.attempt == attempt:
                seat.close(ending)
            slot.refuse(ending, later_s=0.0)
            return
        if seat.membership.attempt != attempt or slot.stopping:
            port.release()
            return
        seat.prepared = prepared
        seat.hold(port)
        slot.record.waiting.begin("ranks")

    def _report(self, slot: Slot, seat: GroupSeat) -> None:
        report = seat.report(type(slot.record.status).__name__)
        if seat.lead is not None:
            seat.lead.hear(report, asked=True)
        elif report != self._told.get(slot.runner_id) and slot.runner_id not in self._telling:
            self._told[slot.runner_id] = report
            self._telling.add(slot.runner_id)
            self._hands.begin(self._tell(slot.runner_id, seat.leader, report))

    async def _tell(self, runner_id: RunnerId, leader: NodeId, report: Report) -> None:
        """Quicker than the leader's next question; when it does not arrive, that one will do."""
        try:
            await self._peers.ask(
                leader, REPORT, report.model_dump_json().encode(), deadline_s=self._limits.ask_s
            )
        except PeerError as error:
            _log.debug("the leader was not told: %s", error)
        finally:
            self._telling.discard(runner_id)
            self._hands.wake()

    def _show_cause(self, slot: Slot, seat: GroupSeat) -> None:
        """Every rank shows what ended the group, once the leader knows."""
        cause = seat.membership.cause
        if cause is None or seat.has_process or seat.refused is not None:
            return
        status = RunnerFailed(error_message=cause)
        if slot.record.status != status:
            slot.record.set_status(status)

    # --- the leader ---

    def _conclude(self, slot: Slot, lead: GroupLead) -> None:
        """Tell the state and the requests why it ended, as soon as that is clear."""
        cause = lead.take_verdict()
        if cause is None:
            return
        if slot.job is None and (slot.seat is None or slot.seat.refused is None):
            slot.record.set_status(RunnerFailed(error_message=cause))
        slot.desk.close(_failure(slot, cause))

    def last_words(self, slot: Slot) -> TaskEnded | None:
        """For a group whose instance goes: what its requests are told when a loss is the reason.

        The state may learn of a lost node before the ranks do.
        """
        seat = slot.seat
        if seat is None or seat.lead is None:
            return None
        here = {self._peers.node_id, *(peer.node_id for peer in self._peers.others())}
        for rank, node in enumerate(seat.nodes):
            if node not in here:
                seat.lead.lose(rank, f"{node} has left the cluster")
        seat.lead.settle()
        cause = seat.lead.take_verdict()
        return None if cause is None else _failure(slot, cause)

    def _lead(self, slot: Slot, seat: GroupSeat, lead: GroupLead) -> None:
        """A link to every other rank, woken when there is something new to say."""
        for rank, node in enumerate(seat.nodes):
            if rank == 0:
                continue
            link = self._links.get((slot.runner_id, rank))
            if link is None:
                link = Link(self._peers, lead, rank, node, self._limits, self._clock)
                self._links[slot.runner_id, rank] = link
                link.task = self._hands.begin(link.run(self._hands.wake))
            link.nudge()

    def _forget(self, kept: set[RunnerId]) -> None:
        for key in [key for key in self._links if key[0] not in kept]:
            link = self._links.pop(key)
            if link.task is not None:
                link.task.cancel()
        for runner_id in self._told.keys() - kept:
            del self._told[runner_id]

    # --- questions of other nodes ---

    async def _answer_goal(self, asker: NodeId, body: bytes) -> bytes:
        goal = self._parse(Goal, body)
        slot, seat = self._find(goal.instance_id, goal.rank)
        if asker != seat.leader:
            message = f"{asker} does not lead instance {goal.instance_id}, {seat.leader} does"
            raise PeerRefused(self._peers.node_id, "not_leader", message)
        seat.membership.obey(goal)
        self._hands.wake()
        return seat.report(type(slot.record.status).__name__).model_dump_json().encode()

    async def _answer_report(self, asker: NodeId, body: bytes) -> bytes:
        report = self._parse(Report, body)
        _, seat = self._find(report.instance_id, 0)
        known = report.rank < len(seat.nodes) and seat.nodes[report.rank] == asker
        if seat.lead is None or not known:
            message = f"{asker} is not rank {report.rank} of instance {report.instance_id}"
            raise PeerRefused(self._peers.node_id, "not_a_rank", message)
        seat.lead.hear(report)
        self._hands.wake()
        return b"{}"

    def _find(self, instance_id: InstanceId, rank: int) -> tuple[Slot, GroupSeat]:
        for slot in self._hands.slots():
            seat = None if slot.stopping else slot.seat
            if seat is not None and (seat.instance_id, seat.rank) == (instance_id, rank):
                return slot, seat
        message = f"no rank {rank} of instance {instance_id} is on this node"
        raise PeerRefused(self._peers.node_id, "no_such_instance", message)

    def _parse(self, kind: type[M], body: bytes) -> M:
        try:
            return kind.model_validate_json(body)
        except ValidationError as error:
            raise PeerRefused(self._peers.node_id, "bad_message", str(error)) from error

    async def _send(self, node: NodeId, method: str, body: str) -> object:
        try:
            return await self._peers.ask(
                node, method, body.encode(), deadline_s=self._limits.leave_s
            )
        except PeerError as error:
            _log.debug("not told of the stop: %s", error)
            return None

    def _name(self, node: NodeId) -> str:
        for peer in self._peers.others():
            if peer.node_id == node and peer.name != node:
                return f"{peer.name} ({node})"
        return str(node)


def _failure(slot: Slot, cause: str) -> TaskEnded:
    model_id = slot.record.identity.shard.model_card.model_id
    message = f"the ranks of {model_id} ended before it finished ({cause}); ask again"
    return TaskEnded("Failed", RUNNER_CRASHED, message)
