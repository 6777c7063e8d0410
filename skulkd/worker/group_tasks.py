"""Passes the requests of a group, and their cancellation, from rank 0's node to the other ranks.

Every rank must have a request before rank 0 starts it. A rank that does not accept one ends the
attempt of its group.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable

from skulkd.peers import PeerError, PeerRefused, Peers
from skulkd.wire.ids import InstanceId, NodeId, TaskId
from skulkd.worker.endings import Blame, Ending
from skulkd.worker.group_messages import DROP, FOLLOW, DropTask, FollowTask, parse_message
from skulkd.worker.options import GroupLimits
from skulkd.worker.refusals import NotReady, RequestTooLarge
from skulkd.worker.slot import RunnerSlot
from skulkd.worker.supervisor import Supervisor
from skulkd.worker.task_stream import TaskStream

_log = logging.getLogger(__name__)


class GroupTasks:
    """`submit` and `drop` are for rank 0's node; the other nodes answer its messages."""

    def __init__(
        self,
        peers: Peers,
        slots: Callable[[], Iterable[RunnerSlot]],
        begin: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
        on_change: Callable[[], None],
        limits: GroupLimits,
    ) -> None:
        self._peers = peers
        self._slots = slots
        self._begin = begin
        self._on_change = on_change
        self._limits = limits
        peers.serve(FOLLOW, self._answer_follow)
        peers.serve(DROP, self._answer_drop)

    async def submit(self, slot: RunnerSlot, request: FollowTask, stream: TaskStream) -> None:
        """To all ranks or to none. Raises NotReady, RequestTooLarge.

        It continues when the caller is cancelled, and the request is cancelled afterwards.
        """
        supervisor = slot.serving
        if supervisor is None:
            raise NotReady(request.instance_id, slot.record.status)
        if slot.life.alone:
            supervisor.submit(request.task, request.generation, stream)
            return
        work = asyncio.create_task(self._to_all_ranks(slot, supervisor, request, stream))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(lambda done: done.exception() or stream.cancel())
            raise

    async def _to_all_ranks(
        self, slot: RunnerSlot, supervisor: Supervisor, request: FollowTask, stream: TaskStream
    ) -> None:
        supervisor.check_size(request.task, request.generation)
        await self._to_other_ranks(slot, request)
        if slot.serving is not supervisor:
            raise NotReady(request.instance_id, slot.record.status)
        supervisor.submit(request.task, request.generation, stream)

    async def _to_other_ranks(self, slot: RunnerSlot, request: FollowTask) -> None:
        """Raises NotReady with the rank that refused."""
        life, leader = slot.life, slot.leader
        body, deadline_s = request.model_dump_json().encode(), self._limits.follow_s
        answers = await asyncio.gather(
            *(
                self._peers.ask(node, FOLLOW, body, deadline_s=deadline_s)
                for node in life.nodes[1:]
            ),
            return_exceptions=True,
        )
        for rank, answer in enumerate(answers, start=1):
            if isinstance(answer, PeerError):
                why = f"did not take a request: {answer}"
                # Ranks that accepted it would wait for rank 0 forever.
                if leader is not None and life.process_attempt == request.attempt:
                    leader.fail(rank, Ending(why, restart_helps=True, blame=Blame.WAITED))
                    self._on_change()
                reason = f"rank {rank} on {life.nodes[rank]} {why}"
                raise NotReady(life.instance_id, slot.record.status, reason) from answer
            if isinstance(answer, BaseException):
                raise answer

    def drop(self, slot: RunnerSlot, task_id: TaskId) -> None:
        """Inform the other ranks that a request was cancelled."""
        message = DropTask(instance_id=slot.life.instance_id, task_id=task_id)
        body = message.model_dump_json().encode()
        for node in slot.life.nodes[1:]:
            self._begin(self._send_drop(node, body))

    async def _send_drop(self, node: NodeId, body: bytes) -> None:
        try:
            await self._peers.ask(node, DROP, body, deadline_s=self._limits.request_s)
        except PeerError as error:
            _log.debug("a rank was not informed of a cancellation: %s", error)

    # --- messages from rank 0's node ---

    async def _answer_follow(self, asker: NodeId, body: bytes) -> bytes:
        request = parse_message(FollowTask, body, self._peers.node_id)
        slot = self._find(asker, request.instance_id)
        supervisor = slot.supervisor
        if supervisor is None or slot.life.process_attempt != request.attempt:
            message = f"rank {slot.life.rank} is not in attempt {request.attempt} of its group"
            raise PeerRefused(self._peers.node_id, "not_ready", message)
        if slot.tasks.find(request.task.task_id) is None:
            try:
                supervisor.submit(request.task, request.generation)
            except (NotReady, RequestTooLarge) as refusal:
                raise PeerRefused(self._peers.node_id, "not_ready", str(refusal)) from refusal
        return b"{}"

    async def _answer_drop(self, asker: NodeId, body: bytes) -> bytes:
        message = parse_message(DropTask, body, self._peers.node_id)
        self._find(asker, message.instance_id).cancel(message.task_id)
        return b"{}"

    def _find(self, asker: NodeId, instance_id: InstanceId) -> RunnerSlot:
        for slot in self._slots():
            if slot.life.instance_id == instance_id and slot.life.leader == asker:
                return slot
        message = f"no rank that follows {asker} in instance {instance_id} is on this node"
        raise PeerRefused(self._peers.node_id, "no_such_instance", message)
