"""One node's part in agreeing: who is here, who is master, what the state is.

A state machine without I/O: it is told what happened and what time it is (monotonic seconds), and
leaves actions to be taken. The same code runs in the daemon and in the simulation of the tests.

A node *seeks* until somebody leads, then *follows*; the one that should lead does. Masters that
meet settle which of them stays (`ruling.py`). A master that gives no sign of life from its event
loop has lost its followers, whatever its sockets say.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from skulkd.cluster.following import Following
from skulkd.cluster.ledger import Ledger
from skulkd.cluster.messages import (
    Beat,
    Bye,
    Cede,
    Ceded,
    Conquer,
    Entries,
    Join,
    Known,
    LostMember,
    Message,
    Named,
    Record,
    Session,
    Snapshot,
    Submit,
    Waiting,
)
from skulkd.cluster.roster import Member, Roster
from skulkd.cluster.ruling import Rules, Ruling
from skulkd.cluster.says import (
    Broadcast,
    Introduce,
    Lost,
    Outbox,
    Renamed,
    Said,
    Send,
)
from skulkd.cluster.timing import Doubt, Timing
from skulkd.cluster.tokens import TokenTable
from skulkd.wire.events import Event
from skulkd.wire.ids import EventId, NodeId

Role = Literal["seeking", "following", "leading"]


class Core:
    """Tell it things; then take what it wants done from `out`."""

    def __init__(
        self,
        node_id: NodeId,
        name: str,
        rules: Rules,
        timing: Timing | None = None,
        record: Record | None = None,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.node_id = node_id
        self.wall_clock = wall_clock
        """For people: since when a node is lost. Nothing is decided by it."""
        self.out = Outbox()
        self.roster = Roster(node_id, name)
        self.ledger = Ledger()
        self.ledger.names[node_id] = name
        self.membership = self.ledger.membership
        self.membership.own_name = name
        self.role: Role = "seeking"
        self.session: Session | None = None
        self.synced = False
        self.pending: dict[EventId, Event] = {}
        """Events of this node that are not in the journal yet, oldest first."""
        self.record = record
        self._tokens_on_disk = TokenTable(record.tokens, record.revoked_tokens) if record else None
        self.now = 0.0
        self.ruling: Ruling | None = None
        self._rules = rules
        self._timing = timing or Timing()
        self._clock = record.clock if record else 0
        self._sought_at = self._seek_until = 0.0
        self._next_beat = 0.0
        self._next_hint = 0.0
        self._doubt = Doubt()
        self.following = Following(self, self._timing)

    # What the daemon tells it.

    def start(self, now: float, *, alone: bool) -> None:
        """`alone`: nothing is configured that could answer, so nobody is waited for."""
        self.now = now
        self._sought_at = now
        self._seek_until = now + (0.0 if alone else self._timing.seek_s)
        if alone:
            self._lead()

    def joined(self, now: float, node: NodeId, name: str) -> None:
        """A node said who it is; again when its name has changed."""
        self._step(now)
        known = self.roster.get(node)
        self.membership.joined(name, known.name if known is not None else None)
        if self.roster.add(node, name, now):
            self.out.put(Send(node, self._beat()))
        self.ledger.names[node] = name
        if self.ruling is not None:
            self.ruling.name(node)

    def lost(self, now: float, node: NodeId, *, stopped: bool = False) -> None:
        """A node is gone; `stopped` when it had said that it stops, which may be heard late."""
        self._step(now)
        if stopped and (name := self.ledger.names.get(node)) is not None:
            self.membership.stopped(name)
            if self.ruling is not None:
                self.ruling.node_stopped(name)
        member = self.roster.remove(node)
        if member is None:
            return
        if not stopped:
            self.membership.vanished(node, member.name, self.wall_clock())
        self.out.put(Said("info", f"{member.name} ({node}) {'left' if stopped else 'was lost'}"))
        self.out.put(Lost(node))
        if self.ruling is not None:
            self.ruling.node_lost(node)
        elif self.session is not None and self.session.master == node:
            self._seek("the master is gone")

    def receive(self, now: float, sender: NodeId, message: Message) -> None:
        """Messages of nodes that are not in the roster yet are ignored; they come again."""
        self._step(now)
        member = self.roster.get(sender)
        if member is None:
            return
        self._heard(message)
        match message:
            case Beat():
                self._on_beat(member, message)
            case Bye():
                self.lost(now, sender, stopped=True)
            case Entries() | Snapshot() | Waiting() | Known():
                self.following.receive(sender, message)
            case Named():
                if self.following.obeys(sender, message.session):
                    self._take_name(message.name)
            case Conquer():
                if self.ruling is not None:
                    self.ruling.cede_to(sender)
            case Ceded():
                if self.ruling is not None and self.ruling.ceded(sender, message.head):
                    self.out.put(Said("info", f"{member.name} is the master of both clusters now"))
                    self.following.handed_over = self.ledger.session
                    self._follow(message.session)
            case Join() | Submit() | Cede():
                if self.ruling is not None:
                    self.ruling.receive(sender, message)

    def append(self, now: float, event: Event) -> None:
        """An event of this node: applied at once by a master, else sent until it is seen."""
        self._step(now)
        if self.ruling is not None:
            self.ruling.append([event])
        else:
            self.following.append(event)

    def flush(self, now: float) -> None:
        """Send what was collected since; called soon after something was told."""
        self._step(now)
        if self.ruling is not None:
            self.ruling.flush()
        elif self.role == "following" and self.synced:
            self.following.flush()

    def tick(self, now: float) -> None:
        """Called several times in a second."""
        self._step(now)
        if self.role == "following":
            self._watch_master()
        if self.role == "seeking":
            self._elect()
        if self.ruling is not None:
            self.ruling.tick()
            self.ruling.flush()
        elif self.role == "following":
            self.following.tick()
        if now >= self._next_beat:
            if self.role == "seeking" and self._outshone():
                self._next_beat = now + self._beat_pause_s()
            else:
                self._send_beat()

    # Seeking and following.

    @property
    def timing(self) -> Timing:
        return self._timing.scaled(len(self.roster.members) + 1)

    @property
    def standing(self) -> tuple[int, int]:
        if self.ledger.session is None and self.record is not None:
            return self.record.standing
        return self.ledger.standing

    def _step(self, now: float) -> None:
        stood_still = self.now and now - self.now > self._timing.still_s
        self.now = now
        if stood_still and self.role != "seeking" and self.roster.members:
            for member in self.roster.members.values():
                member.beat = None
            self._seek("this node stood still")
            self._seek_until = now + self._timing.seek_s

    def _heard(self, message: Message) -> None:
        session = getattr(message, "session", None)
        if session is not None:
            self._clock = max(self._clock, session.clock)

    def _on_beat(self, member: Member, beat: Beat) -> None:
        came_back = member.hear(beat, self.now)
        if self.ruling is not None:
            if came_back:
                self.ruling.node_back(member.node_id)
            if beat.leading and beat.session is not None:
                self.ruling.meet(member.node_id, beat)
        elif self.role == "seeking" and beat.leading:
            self._elect()
        elif self.role == "following" and self.session and member.node_id != self.session.master:
            if beat.leading and beat.session is not None:
                self._two_masters(member, beat.session)
        elif self.role == "following" and self.session:
            self._watch_master()
            if self.synced and beat.standing[1] > self.ledger.head:
                self.following.ask(self._timing.resend_s)

    def _two_masters(self, other: Member, session: Session) -> None:
        """This node sees its master and another one. They would have met if they could.

        They are told of each other. If that does not help, there is no way between them, and
        this node, which sees both, leads in the name of its master.
        """
        master = self.roster.get(self.session.master) if self.session is not None else None
        if master is None or master.beat is None or not master.beat.leading:
            return
        if self.now >= self._next_hint:
            self._next_hint = self.now + 1.0
            self.out.put(Introduce(other.node_id, master.node_id))
        rivals = sum(node < self.node_id for node in self.roster.members) * self._timing.seek_s
        patience_s = self.timing.beat_timeout_s + rivals
        if self.synced and self._doubt.lasts(session, self.now, patience_s):
            names = f"{master.name} and {other.name}"
            self.out.put(Said("warning", f"{names} do not reach each other; this node leads both"))
            self._lead(master.beat.reign_s)

    def _watch_master(self) -> None:
        session = self.session
        master = self.roster.get(session.master) if session else None
        if session is None or master is None:
            self._seek("the master is gone")
        elif self.now - master.heard_at > self.timing.beat_timeout_s:
            master.beat = None
            self._seek(f"{master.name} gives no sign of life")
        elif master.beat is not None and master.beat.session != session:
            if master.beat.leading and master.beat.session is not None:
                self._follow(master.beat.session)
            else:
                self._seek(f"{master.name} leads no longer")

    def _seek(self, why: str) -> None:
        if self.role != "seeking":
            self.out.put(Said("info", f"looking for a master: {why}"))
        was_leading = self.role == "leading"
        self.role, self.session, self.ruling, self.synced = "seeking", None, None, False
        self._sought_at = self.now
        self._seek_until = self.now + self.timing.elect_s
        rivals = sum(node > self.node_id for node in self.roster.members)
        # The likeliest successor speaks first; whoever hears a better one need not speak at all.
        # All at once would be a message from everybody to everybody.
        self._next_beat = self.now + self._timing.hush_s * min(rivals, 2)
        if was_leading or not rivals:
            self._send_beat()

    def _outshone(self) -> bool:
        """Whether a better successor has spoken lately: nobody waits for this node then."""
        lately = self.now - 2 * self._beat_pause_s()
        own = (self.standing, self.node_id)
        return any(
            member.beat is not None
            and member.heard_at >= max(lately, self._sought_at)
            and (member.beat.standing, member.node_id) > own
            for member in self.roster.members.values()
        )

    def _unheard(self) -> bool:
        """Whether one that may be better has not spoken since this node began to seek."""
        return any(
            member.beat is not None and member.heard_at < self._sought_at and node > self.node_id
            for node, member in self.roster.members.items()
        )

    def _elect(self) -> None:
        fresh_s = self.timing.beat_timeout_s
        leaders = [
            (member.beat.reign_s, member.node_id, member.beat.session)
            for member in self.roster.members.values()
            if member.beat is not None
            and member.beat.leading
            and member.beat.session is not None
            and self.now - member.heard_at <= fresh_s
        ]
        if leaders:
            session = max(leaders)[2]
            self._follow(session)
            return
        better = self._unheard() + sum(
            (member.beat.standing, member.node_id) > (self.standing, self.node_id)
            for member in self.roster.members.values()
            if member.beat is not None
            and self.now - member.heard_at <= fresh_s
            and member.heard_at >= self._sought_at
        )
        if self.now >= self._seek_until + better * self.timing.stagger_s:
            self._lead()

    def _lead(self, inherited_s: float = 0.0) -> None:
        """`inherited_s`: age of a reign that this one continues, so that it keeps its rank."""
        self._clock += 1
        session = Session(self._clock, self.node_id)
        self.role, self.session, self.synced = "leading", session, True
        if (name := self.roster.own_free_name()) != self.roster.name:
            self._take_name(name)
        self.ruling = Ruling(self, session, self._rules)
        self.ruling.since -= inherited_s
        count = len(self.roster.members) + 1
        first_and_alone = count == 1 and self.ledger.session is None
        if not first_and_alone:
            text = f"this node is the master (session {session.clock}, {count} nodes)"
            self.out.put(Said("info", text))
        self.ruling.begin(self.record)
        self.record = None
        self.ruling.append(list(self.pending.values()))
        self.pending.clear()
        self._send_beat()

    def _follow(self, session: Session) -> None:
        master = self.roster.get(session.master)
        if master is None:
            self._seek("the master is not here")
            return
        self.out.put(Said("info", f"following {master.name} (session {session.clock})"))
        stepped_down = self.role == "leading"
        self.role, self.session, self.ruling, self.synced = "following", session, None, False
        self._clock = max(self._clock, session.clock)
        self.following.ask(0.0)
        self._send_beat()
        if stepped_down:
            # Those who followed this node must not wait for it to fall silent.
            self.out.put(Broadcast(self._beat()))

    # Signs of life.

    def _beat(self) -> Beat:
        if self.ruling is None:
            return Beat(self.session, False, self.standing)
        age = self.now - self.ruling.since
        count = len(self.roster.members) + 1
        led_s = self.now - self.ruling.began
        return Beat(self.session, True, self.standing, age, self.ledger.ancestors, count, led_s)

    @property
    def tokens(self) -> TokenTable:
        """The cluster's; those of this node's disk until it knows what the cluster has."""
        if self.record is not None and self._tokens_on_disk is not None:
            return self._tokens_on_disk
        return self.ledger.tokens

    def missing_members(self) -> list[LostMember]:
        """Who left without notice and is not back."""
        return self.membership.missing(self.roster.living().values())

    def _beat_pause_s(self) -> float:
        return self.timing.beat_s * (0.5 if self.role == "seeking" else 1.0)

    def _send_beat(self) -> None:
        """A follower tells only its master; whoever leads or seeks tells everybody."""
        self._next_beat = self.now + self._beat_pause_s()
        beat = self._beat()
        if self.role == "following" and self.session is not None:
            self.out.put(Send(self.session.master, beat))
        else:
            self.out.put(Broadcast(beat))

    def _take_name(self, name: str) -> None:
        if name != self.roster.name:
            self.membership.joined(name, self.roster.name)
            self.membership.own_name = name
            self.roster.name = name
            self.ledger.names[self.node_id] = name
            self.out.put(Renamed(name))
