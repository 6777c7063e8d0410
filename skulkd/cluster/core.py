"""Membership, election and replication of one node, as a state machine without I/O.

Inputs are what happened and the time (monotonic seconds); outputs are actions (`actions.py`). The
same code runs in the daemon and in the simulation of the tests.

A node is *seeking* until there is a master, then *following*; the best candidate starts *leading*.
Two masters that meet decide which of them hands over (`leader.py`). Followers leave a master that
sends no heartbeats, even if its connection is open.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from skulkd.cluster.actions import (
    ActionQueue,
    Broadcast,
    Introduce,
    LogMessage,
    NodeGone,
    Renamed,
    Send,
)
from skulkd.cluster.connected_nodes import ConnectedNodes, Member
from skulkd.cluster.follower import Follower
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.leader import ClusterLeader, LeaderPolicy
from skulkd.cluster.messages import (
    AlreadyOrdered,
    AssignedName,
    ClusterRecord,
    Entries,
    HandOver,
    HandOverDone,
    Join,
    JournalSnapshot,
    Leaving,
    LostMember,
    MasterSession,
    Message,
    NodeHeartbeat,
    RequestHandOver,
    Submit,
    UnplacedList,
)
from skulkd.cluster.timing import RivalMasterTimer, Timing
from skulkd.cluster.tokens import TokenTable
from skulkd.wire.events import Event
from skulkd.wire.ids import EventId, NodeId

Role = Literal["seeking", "following", "leading"]


class Core:
    """Call it for every input, then perform the actions in `out`."""

    def __init__(
        self,
        node_id: NodeId,
        name: str,
        policy: LeaderPolicy,
        timing: Timing | None = None,
        record: ClusterRecord | None = None,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.node_id = node_id
        self.wall_clock = wall_clock
        """For display only: since when a node is lost."""
        self.out = ActionQueue()
        self.connected = ConnectedNodes(node_id, name)
        self.journal = JournalReplica()
        self.journal.names[node_id] = name
        self.membership = self.journal.membership
        self.membership.own_name = name
        self.role: Role = "seeking"
        self.session: MasterSession | None = None
        self.synced = False
        self.pending: dict[EventId, Event] = {}
        """Events of this node that are not in the journal yet, oldest first."""
        self.record = record
        self._tokens_on_disk = TokenTable(record.tokens, record.revoked_tokens) if record else None
        self.now = 0.0
        self.leader: ClusterLeader | None = None
        self._policy = policy
        self._timing = timing or Timing()
        self._clock = record.clock if record else 0
        self._sought_at = self._seek_until = 0.0
        self._next_heartbeat = 0.0
        self._next_hint = 0.0
        self._rival_timer = RivalMasterTimer()
        self.follower = Follower(self, self._timing)

    # Inputs.

    def start(self, now: float, *, alone: bool) -> None:
        """`alone`: no peers are configured, so this node leads without waiting for others."""
        self.now = now
        self._sought_at = now
        self._seek_until = now + (0.0 if alone else self._timing.seek_s)
        if alone:
            self._lead()

    def joined(self, now: float, node: NodeId, name: str) -> None:
        """A node sent its hello; it sends another when its name changes."""
        self._set_now(now)
        known = self.connected.get(node)
        self.membership.joined(name, known.name if known is not None else None)
        if self.connected.add(node, name, now):
            self.out.put(Send(node, self._heartbeat()))
        self.journal.names[node] = name
        if self.leader is not None:
            self.leader.assign_name(node)

    def lost(self, now: float, node: NodeId, *, stopped: bool = False) -> None:
        """A node is gone; `stopped` when it announced that, which may arrive late."""
        self._set_now(now)
        if stopped and (name := self.journal.names.get(node)) is not None:
            self.membership.stopped(name)
            if self.leader is not None:
                self.leader.node_stopped(name)
        member = self.connected.remove(node)
        if member is None:
            return
        if not stopped:
            self.membership.vanished(node, member.name, self.wall_clock())
        self.out.put(
            LogMessage("info", f"{member.name} ({node}) {'left' if stopped else 'was lost'}")
        )
        self.out.put(NodeGone(node))
        if self.leader is not None:
            self.leader.node_lost(node)
        elif self.session is not None and self.session.master == node:
            self._seek("the master is gone")

    def receive(self, now: float, sender: NodeId, message: Message) -> None:
        """Messages of nodes that are not connected yet are ignored; senders repeat them."""
        self._set_now(now)
        member = self.connected.get(sender)
        if member is None:
            return
        self._observe_clock(message)
        match message:
            case NodeHeartbeat():
                self._on_heartbeat(member, message)
            case Leaving():
                self.lost(now, sender, stopped=True)
            case Entries() | JournalSnapshot() | UnplacedList() | AlreadyOrdered():
                self.follower.receive(sender, message)
            case AssignedName():
                if self.follower.is_from_master(sender, message.session):
                    self._set_own_name(message.name)
            case RequestHandOver():
                if self.leader is not None:
                    self.leader.hand_over_to(sender)
            case HandOverDone():
                if self.leader is not None and self.leader.hand_over_done(sender, message.head):
                    self.out.put(
                        LogMessage("info", f"{member.name} is the master of both clusters now")
                    )
                    self.follower.handed_over = self.journal.session
                    self._follow(message.session)
            case Join() | Submit() | HandOver():
                if self.leader is not None:
                    self.leader.receive(sender, message)

    def append(self, now: float, event: Event) -> None:
        """Append an event: applied at once on the master, else sent until the journal has it."""
        self._set_now(now)
        if self.leader is not None:
            self.leader.append([event])
        else:
            self.follower.append(event)

    def flush(self, now: float) -> None:
        """Send what was collected; called soon after an input."""
        self._set_now(now)
        if self.leader is not None:
            self.leader.flush()
        elif self.role == "following" and self.synced:
            self.follower.flush()

    def tick(self, now: float) -> None:
        """Called several times a second."""
        self._set_now(now)
        if self.role == "following":
            self._watch_master()
        if self.role == "seeking":
            self._elect()
        if self.leader is not None:
            self.leader.tick()
            self.leader.flush()
        elif self.role == "following":
            self.follower.tick()
        if now >= self._next_heartbeat:
            if self.role == "seeking" and self._better_candidate_heard():
                self._next_heartbeat = now + self._heartbeat_pause_s()
            else:
                self._send_heartbeat()

    # Election.

    @property
    def timing(self) -> Timing:
        return self._timing.scaled(len(self.connected.members) + 1)

    @property
    def standing(self) -> tuple[int, int]:
        if self.journal.session is None and self.record is not None:
            return self.record.standing
        return self.journal.standing

    def _set_now(self, now: float) -> None:
        was_suspended = self.now and now - self.now > self._timing.suspended_s
        self.now = now
        if was_suspended and self.role != "seeking" and self.connected.members:
            for member in self.connected.members.values():
                member.heartbeat = None
            self._seek("this node was suspended")
            self._seek_until = now + self._timing.seek_s

    def _observe_clock(self, message: Message) -> None:
        session = getattr(message, "session", None)
        if session is not None:
            self._clock = max(self._clock, session.clock)

    def _on_heartbeat(self, member: Member, heartbeat: NodeHeartbeat) -> None:
        came_back = member.record_heartbeat(heartbeat, self.now)
        if self.leader is not None:
            if came_back:
                self.leader.node_returned(member.node_id)
            if heartbeat.leading and heartbeat.session is not None:
                self.leader.resolve_rival(member.node_id, heartbeat)
        elif self.role == "seeking" and heartbeat.leading:
            self._elect()
        elif self.role == "following" and self.session and member.node_id != self.session.master:
            if heartbeat.leading and heartbeat.session is not None:
                self._two_masters(member, heartbeat.session)
        elif self.role == "following" and self.session:
            self._watch_master()
            if self.synced and heartbeat.standing[1] > self.journal.head:
                self.follower.request_sync(self._timing.resend_s)

    def _two_masters(self, other: Member, session: MasterSession) -> None:
        """This node is connected to its master and to another one, which seem not to be linked.

        Send each the addresses of the other. If that does not help, there is no route between
        them, and this node, which reaches both, continues the session of its master.
        """
        master = self.connected.get(self.session.master) if self.session is not None else None
        if master is None or master.heartbeat is None or not master.heartbeat.leading:
            return
        if self.now >= self._next_hint:
            self._next_hint = self.now + 1.0
            self.out.put(Introduce(other.node_id, master.node_id))
        rivals = sum(node < self.node_id for node in self.connected.members) * self._timing.seek_s
        patience_s = self.timing.heartbeat_timeout_s + rivals
        if self.synced and self._rival_timer.exceeded(session, self.now, patience_s):
            names = f"{master.name} and {other.name}"
            self.out.put(
                LogMessage("warning", f"{names} do not reach each other; this node leads both")
            )
            self._lead(master.heartbeat.reign_s)

    def _watch_master(self) -> None:
        session = self.session
        master = self.connected.get(session.master) if session else None
        if session is None or master is None:
            self._seek("the master is gone")
        elif self.now - master.heard_at > self.timing.heartbeat_timeout_s:
            master.heartbeat = None
            self._seek(f"{master.name} gives no sign of life")
        elif master.heartbeat is not None and master.heartbeat.session != session:
            if master.heartbeat.leading and master.heartbeat.session is not None:
                self._follow(master.heartbeat.session)
            else:
                self._seek(f"{master.name} is no longer the master")

    def _seek(self, why: str) -> None:
        if self.role != "seeking":
            self.out.put(LogMessage("info", f"looking for a master: {why}"))
        was_leading = self.role == "leading"
        self.role, self.session, self.leader, self.synced = "seeking", None, None, False
        self._sought_at = self.now
        self._seek_until = self.now + self.timing.elect_s
        rivals = sum(node > self.node_id for node in self.connected.members)
        # The best candidate sends first, and the others stay quiet when they hear it: if all sent
        # at once, the number of messages would be the square of the number of nodes.
        self._next_heartbeat = self.now + self._timing.first_heartbeat_stagger_s * min(rivals, 2)
        if was_leading or not rivals:
            self._send_heartbeat()

    def _better_candidate_heard(self) -> bool:
        """Whether a better candidate sent a heartbeat lately, so this node need not send one."""
        lately = self.now - 2 * self._heartbeat_pause_s()
        own = (self.standing, self.node_id)
        return any(
            member.heartbeat is not None
            and member.heard_at >= max(lately, self._sought_at)
            and (member.heartbeat.standing, member.node_id) > own
            for member in self.connected.members.values()
        )

    def _better_candidate_unheard(self) -> bool:
        """Whether a possibly better candidate has sent nothing since this node began to seek."""
        return any(
            member.heartbeat is not None
            and member.heard_at < self._sought_at
            and node > self.node_id
            for node, member in self.connected.members.items()
        )

    def _elect(self) -> None:
        fresh_s = self.timing.heartbeat_timeout_s
        leaders = [
            (member.heartbeat.reign_s, member.node_id, member.heartbeat.session)
            for member in self.connected.members.values()
            if member.heartbeat is not None
            and member.heartbeat.leading
            and member.heartbeat.session is not None
            and self.now - member.heard_at <= fresh_s
        ]
        if leaders:
            session = max(leaders)[2]
            self._follow(session)
            return
        better = self._better_candidate_unheard() + sum(
            (member.heartbeat.standing, member.node_id) > (self.standing, self.node_id)
            for member in self.connected.members.values()
            if member.heartbeat is not None
            and self.now - member.heard_at <= fresh_s
            and member.heard_at >= self._sought_at
        )
        if self.now >= self._seek_until + better * self.timing.stagger_s:
            self._lead()

    def _lead(self, inherited_s: float = 0.0) -> None:
        """`inherited_s`: age of the session that this one continues; the older session wins."""
        self._clock += 1
        session = MasterSession(self._clock, self.node_id)
        self.role, self.session, self.synced = "leading", session, True
        if (name := self.connected.own_unique_name()) != self.connected.name:
            self._set_own_name(name)
        self.leader = ClusterLeader(self, session, self._policy)
        self.leader.since -= inherited_s
        count = len(self.connected.members) + 1
        first_and_alone = count == 1 and self.journal.session is None
        if not first_and_alone:
            text = f"this node is the master (session {session.clock}, {count} nodes)"
            self.out.put(LogMessage("info", text))
        self.leader.begin(self.record)
        self.record = None
        self.leader.append(list(self.pending.values()))
        self.pending.clear()
        self._send_heartbeat()

    def _follow(self, session: MasterSession) -> None:
        master = self.connected.get(session.master)
        if master is None:
            self._seek("the master is not connected")
            return
        self.out.put(LogMessage("info", f"following {master.name} (session {session.clock})"))
        stepped_down = self.role == "leading"
        self.role, self.session, self.leader, self.synced = "following", session, None, False
        self._clock = max(self._clock, session.clock)
        self.follower.request_sync(0.0)
        self._send_heartbeat()
        if stepped_down:
            # Tell former followers now, so that they need not wait for a timeout.
            self.out.put(Broadcast(self._heartbeat()))

    # Heartbeats.

    def _heartbeat(self) -> NodeHeartbeat:
        if self.leader is None:
            return NodeHeartbeat(self.session, False, self.standing)
        age = self.now - self.leader.since
        count = len(self.connected.members) + 1
        led_s = self.now - self.leader.began
        return NodeHeartbeat(
            self.session, True, self.standing, age, self.journal.ancestors, count, led_s
        )

    @property
    def tokens(self) -> TokenTable:
        """The tokens of the cluster; until this node is in sync, those of its own disk."""
        if self.record is not None and self._tokens_on_disk is not None:
            return self._tokens_on_disk
        return self.journal.tokens

    def missing_members(self) -> list[LostMember]:
        """Members that left without notice and have not returned."""
        return self.membership.missing(self.connected.alive().values())

    def _heartbeat_pause_s(self) -> float:
        return self.timing.heartbeat_s * (0.5 if self.role == "seeking" else 1.0)

    def _send_heartbeat(self) -> None:
        """A follower sends it to its master only; otherwise it goes to all nodes."""
        self._next_heartbeat = self.now + self._heartbeat_pause_s()
        heartbeat = self._heartbeat()
        if self.role == "following" and self.session is not None:
            self.out.put(Send(self.session.master, heartbeat))
        else:
            self.out.put(Broadcast(heartbeat))

    def _set_own_name(self, name: str) -> None:
        if name != self.connected.name:
            self.membership.joined(name, self.connected.name)
            self.membership.own_name = name
            self.connected.name = name
            self.journal.names[self.node_id] = name
            self.out.put(Renamed(name))
