"""Requests of a group: rank 0's node hands each to the nodes of the other ranks.

All ranks must have a request before rank 0 may begin it, and all of them must hear when it is
cancelled. A rank that does not take one is broken, and its group with it.
"""

import asyncio
import logging
from collections.abc import Callable

from pydantic import ValidationError

from skulkd.peers import PeerError, PeerRefused, Peers
from skulkd.wire.ids import InstanceId, NodeId, TaskId
from skulkd.worker.causes import Blame, Ending
from skulkd.worker.group_messages import DROP, FOLLOW, Drop, Follow
from skulkd.worker.group_seat import GroupSeat
from skulkd.worker.groups import Hands
from skulkd.worker.options import GroupLimits
from skulkd.worker.refusals import NotReady, RequestTooLarge
from skulkd.worker.slot import Slot
from skulkd.worker.supervisor import Supervisor
from skulkd.worker.task_stream import TaskStream

HandOver = Callable[[Supervisor], TaskStream]
_log = logging.getLogger(__name__)


class GroupTasks:
    """For rank 0: `submit` and `drop`. For the others it answers these."""

    def __init__(
        self,
        peers: Peers,
        hands: Hands,
        limits: GroupLimits,
    ) -> None:
        self._peers = peers
        self._hands = hands
        self._limits = limits
        peers.serve(FOLLOW, self._answer_follow)
        peers.serve(DROP, self._answer_drop)

    async def submit(
        self, slot: Slot, request: Follow, hand_over: HandOver, cancel: Callable[[], object]
    ) -> TaskStream:
        """To all ranks or to none: it goes on when whoever asked has gone, and is then dropped.

        Raises NotReady, RequestTooLarge.
        """
        work = asyncio.create_task(self._to_all_ranks(slot, request, hand_over))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(lambda done: done.exception() or cancel())
            raise

    async def _to_all_ranks(self, slot: Slot, request: Follow, hand_over: HandOver) -> TaskStream:
        supervisor, seat = slot.serving, slot.seat
        if supervisor is None or seat is None:
            raise NotReady(request.instance_id, slot.record.status)
        supervisor.check_size(request.task, request.generation)
        await self._follow(slot, seat, request)
        if slot.serving is not supervisor:
            raise NotReady(request.instance_id, slot.record.status)
        return hand_over(supervisor)

    async def _follow(self, slot: Slot, seat: GroupSeat, request: Follow) -> None:
        """Give the request to all other ranks. Raises NotReady naming the one that refused."""
        body = request.model_dump_json().encode()
        answers = await asyncio.gather(
            *(self._offer(node, body) for node in seat.nodes[1:]), return_exceptions=True
        )
        for rank, answer in enumerate(answers, start=1):
            if isinstance(answer, PeerError):
                why = f"did not take a request: {answer}"
                # Those that took it wait for rank 0 now, in vain.
                if seat.lead is not None and seat.process_attempt == request.attempt:
                    seat.lead.fail(rank, Ending(why, restart_helps=True, blame=Blame.WAITED))
                    self._hands.wake()
                reason = f"rank {rank} on {seat.nodes[rank]} {why}"
                raise NotReady(seat.instance_id, slot.record.status, reason) from answer
            if isinstance(answer, BaseException):
                raise answer

    def drop(self, seat: GroupSeat, task_id: TaskId) -> None:
        """Tell the other ranks that nobody wants the answer; rank 0 decides what they do."""
        body = Drop(instance_id=seat.instance_id, task_id=task_id).model_dump_json().encode()
        for node in seat.nodes[1:]:
            self._hands.begin(self._tell(node, body))

    async def _offer(self, node: NodeId, body: bytes) -> bytes:
        return await self._peers.ask(node, FOLLOW, body, deadline_s=self._limits.follow_s)

    async def _tell(self, node: NodeId, body: bytes) -> None:
        try:
            await self._peers.ask(node, DROP, body, deadline_s=self._limits.ask_s)
        except PeerError as error:
            _log.debug("a rank was not told of a cancellation: %s", error)

    # --- for the other ranks ---

    async def _answer_follow(self, asker: NodeId, body: bytes) -> bytes:
        try:
            follow = Follow.model_validate_json(body)
        except ValidationError as error:
            raise PeerRefused(self._peers.node_id, "bad_message", str(error)) from error
        slot, seat = self._find(asker, follow.instance_id)
        supervisor = slot.supervisor
        if supervisor is None or seat.process_attempt != follow.attempt:
            message = f"rank {seat.rank} is not in attempt {follow.attempt} of its group"
            raise PeerRefused(self._peers.node_id, "not_ready", message)
        if slot.record.book.find(follow.task.task_id) is None:
            try:
                supervisor.submit(follow.task, follow.generation)
            except (NotReady, RequestTooLarge) as refusal:
                raise PeerRefused(self._peers.node_id, "not_ready", str(refusal)) from refusal
        return b"{}"

    async def _answer_drop(self, asker: NodeId, body: bytes) -> bytes:
        try:
            drop = Drop.model_validate_json(body)
        except ValidationError as error:
            raise PeerRefused(self._peers.node_id, "bad_message", str(error)) from error
        slot, _ = self._find(asker, drop.instance_id)
        asked = slot.record.book.cancel(drop.task_id) == "cancel_requested"
        if asked and slot.supervisor is not None:
            slot.supervisor.cancel(drop.task_id)
        return b"{}"

    def _find(self, asker: NodeId, instance_id: InstanceId) -> tuple[Slot, GroupSeat]:
        for slot in self._hands.slots():
            seat = slot.seat
            if seat is not None and seat.instance_id == instance_id and seat.leader == asker:
                return slot, seat
        message = f"no rank that follows {asker} in instance {instance_id} is on this node"
        raise PeerRefused(self._peers.node_id, "no_such_instance", message)
