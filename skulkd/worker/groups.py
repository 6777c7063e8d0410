"""Exchanges goals and reports with the other nodes of an instance.

Decides nothing: `group_leader.py` and `lifecycle.py` do. Every message has a timeout, and one
frozen node delays no other.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable

from pydantic import ValidationError

from skulkd.peers import PeerError, PeerGone, PeerRefused, Peers
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.worker.endings import Blame, Ending
from skulkd.worker.group_leader import GroupLeader
from skulkd.worker.group_messages import GOAL, REPORT, GroupGoal, Report, parse_message
from skulkd.worker.options import GroupLimits
from skulkd.worker.slot import RunnerSlot
from skulkd.worker.task_stream import TaskEnded

_log = logging.getLogger(__name__)
_NODE_STOPPING = Ending("its node is stopping", restart_helps=True, blame=Blame.LOST)


class Groups:
    """`advance` at every change: it sends goals and reports where they are new."""

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
        self._senders: dict[tuple[RunnerId, int], GoalSender] = {}
        self._reported: dict[RunnerId, Report] = {}
        self._reporting: set[RunnerId] = set()
        peers.serve(GOAL, self._answer_goal)
        peers.serve(REPORT, self._answer_report)

    # --- for the worker ---

    def advance(self) -> float | None:
        """Advance all groups; when to call this again at the latest."""
        due: list[float] = []
        active = [slot for slot in self._slots() if not slot.life.stopping]
        for slot in active:
            slot.advance()
            if slot.leader is None:
                self._send_report(slot)
            else:
                self._send_goals(slot, slot.leader)
                due += [] if slot.leader.check_at is None else [slot.leader.check_at]
        self._forget({slot.runner_id for slot in active})
        return min(due, default=None)

    def leader_lost(self, slot: RunnerSlot) -> str | None:
        """Why the leader of this rank counts as lost, if it does."""
        life = slot.life
        if life.leader == self._peers.node_id or life.process_attempt is None:
            return None
        name = self.node_name(life.leader)
        if all(peer.node_id != life.leader for peer in self._peers.others()):
            return f"{name}, the node of rank 0, has left the cluster"
        silent_s = time.monotonic() - life.goal_at
        if silent_s > self._limits.lease_s:
            return f"{name}, the node of rank 0, has been silent for {silent_s:.0f} s"
        return None

    def lost_node_failure(self, slot: RunnerSlot) -> TaskEnded | None:
        """For an instance that is gone: the end of its requests, if a lost node is the cause.

        The state may show the loss of a node before the group has noticed it.
        """
        leader = slot.leader
        if leader is None:
            return None
        present = {self._peers.node_id, *(peer.node_id for peer in self._peers.others())}
        for rank, node in enumerate(slot.life.nodes):
            if node not in present:
                leader.lose(rank, f"{node} has left the cluster")
        leader.decide_cause()
        failure = leader.pop_failure()
        return None if failure is None else slot.failure_text(failure)

    async def leave(self) -> None:
        """This node stops: inform the other ranks."""
        sending: list[Coroutine[None, None, None]] = []
        for slot in self._slots():
            life = slot.life
            if slot.leader is not None:
                slot.leader.fail(0, _NODE_STOPPING)
                sending += [
                    self._send(node, GOAL, slot.leader.goal(rank))
                    for rank, node in enumerate(life.nodes)
                    if rank > 0
                ]
            else:
                life.abandon(_NODE_STOPPING)
                sending.append(self._send(life.leader, REPORT, slot.report()))
        self._forget(set())
        await asyncio.gather(*sending)

    def node_name(self, node: NodeId) -> str:
        for peer in self._peers.others():
            if peer.node_id == node and peer.name != node:
                return f"{peer.name} ({node})"
        return str(node)

    # --- sending ---

    def _send_goals(self, slot: RunnerSlot, leader: GroupLeader) -> None:
        for rank, node in enumerate(slot.life.nodes):
            if rank == 0:
                continue
            sender = self._senders.get((slot.runner_id, rank))
            if sender is None:
                sender = GoalSender(self._peers, leader, rank, node, self._limits)
                self._senders[slot.runner_id, rank] = sender
                sender.task = self._begin(sender.run(self._on_change))
            sender.send_if_new()

    def _send_report(self, slot: RunnerSlot) -> None:
        """At once, without waiting for the leader's next goal; a lost report does not matter."""
        report, runner_id = slot.report(), slot.runner_id
        if report != self._reported.get(runner_id) and runner_id not in self._reporting:
            self._reported[runner_id] = report
            self._reporting.add(runner_id)
            self._begin(self._deliver_report(runner_id, slot.life.leader, report))

    async def _deliver_report(self, runner_id: RunnerId, leader: NodeId, report: Report) -> None:
        body, deadline_s = report.model_dump_json().encode(), self._limits.request_s
        try:
            await self._peers.ask(leader, REPORT, body, deadline_s=deadline_s)
        except PeerError as error:
            _log.debug("a report was not delivered: %s", error)
        finally:
            self._reporting.discard(runner_id)
            self._on_change()

    async def _send(self, node: NodeId, method: str, message: GroupGoal | Report) -> None:
        body = message.model_dump_json().encode()
        try:
            await self._peers.ask(node, method, body, deadline_s=self._limits.leave_s)
        except PeerError as error:
            _log.debug("a node was not informed that this one stops: %s", error)

    def _forget(self, kept: set[RunnerId]) -> None:
        for key in [key for key in self._senders if key[0] not in kept]:
            sender = self._senders.pop(key)
            if sender.task is not None:
                sender.task.cancel()
        for runner_id in self._reported.keys() - kept:
            del self._reported[runner_id]

    # --- messages from other nodes ---

    async def _answer_goal(self, asker: NodeId, body: bytes) -> bytes:
        goal = parse_message(GroupGoal, body, self._peers.node_id)
        slot = self._find(goal.instance_id, goal.rank)
        leader = slot.life.leader
        if asker != leader:
            message = f"{asker} does not lead instance {goal.instance_id}, {leader} does"
            raise PeerRefused(self._peers.node_id, "not_leader", message)
        slot.life.apply_goal(goal)
        self._on_change()
        return slot.report().model_dump_json().encode()

    async def _answer_report(self, asker: NodeId, body: bytes) -> bytes:
        report = parse_message(Report, body, self._peers.node_id)
        slot = self._find(report.instance_id, 0)
        nodes = slot.life.nodes
        known = report.rank < len(nodes) and nodes[report.rank] == asker
        if slot.leader is None or not known:
            message = f"{asker} is not rank {report.rank} of instance {report.instance_id}"
            raise PeerRefused(self._peers.node_id, "not_a_rank", message)
        slot.leader.receive(report)
        self._on_change()
        return b"{}"

    def _find(self, instance_id: InstanceId, rank: int) -> RunnerSlot:
        for slot in self._slots():
            life = slot.life
            if not life.stopping and (life.instance_id, life.rank) == (instance_id, rank):
                return slot
        message = f"no rank {rank} of instance {instance_id} is on this node"
        raise PeerRefused(self._peers.node_id, "no_such_instance", message)


class GoalSender:
    """Sends the leader's goal to one rank: at every change, and as a heartbeat."""

    def __init__(
        self,
        peers: Peers,
        leader: GroupLeader,
        rank: int,
        node: NodeId,
        limits: GroupLimits,
    ) -> None:
        self._peers = peers
        self._leader = leader
        self._rank = rank
        self._node = node
        self._limits = limits
        self._answered_at = time.monotonic()
        self._sent: GroupGoal | None = None
        self._new_goal = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def send_if_new(self) -> None:
        if self._sent != self._leader.goal(self._rank):
            self._new_goal.set()

    async def run(self, on_change: Callable[[], None]) -> None:
        """Until cancelled."""
        while True:
            self._new_goal.clear()
            await self._send()
            on_change()
            try:
                async with asyncio.timeout(self._limits.heartbeat_s):
                    await self._new_goal.wait()
            except TimeoutError:
                continue

    async def _send(self) -> None:
        goal = self._sent = self._leader.goal(self._rank)
        body, deadline_s = goal.model_dump_json().encode(), self._limits.request_s
        try:
            answer = await self._peers.ask(self._node, GOAL, body, deadline_s=deadline_s)
            self._leader.receive(Report.model_validate_json(answer), solicited=True)
        except (PeerGone, PeerRefused) as error:
            self._leader.lose(self._rank, str(error))
        except (PeerError, ValidationError) as error:
            if time.monotonic() - self._answered_at < self._limits.lease_s:
                return
            self._leader.lose(self._rank, str(error))
        self._answered_at = time.monotonic()
