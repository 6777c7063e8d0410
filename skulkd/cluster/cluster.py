"""This node's part in the cluster, on the event loop: the state machine, its clock and its voice.

Connects `core` (which decides) with the fabric (which carries), the replica and the disk. Its
beat comes from the event loop on purpose: a node whose loop hangs must be seen to hang.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skulkd.cluster.codec import Unreadable, dump, is_message, kind_of, load
from skulkd.cluster.commits import Commits
from skulkd.cluster.core import Core
from skulkd.cluster.disk import RecordFile
from skulkd.cluster.fabric import Fabric, FabricPlan
from skulkd.cluster.fabric_peers import FabricPeers
from skulkd.cluster.frames import BadFrame, Head, decode, encode
from skulkd.cluster.greeting import PROTOCOL, Greeting, read_greeting, same_place, why_not
from skulkd.cluster.messages import Beat, Bye, Entry, Message, Session, Stored
from skulkd.cluster.private import without_words
from skulkd.cluster.reign import Reign, session_age_s
from skulkd.cluster.ruling import Rules
from skulkd.cluster.saving import Saving
from skulkd.cluster.says import (
    Action,
    Applied,
    Broadcast,
    Introduce,
    Lost,
    Renamed,
    Replaced,
    Said,
    Send,
)
from skulkd.cluster.telemetry import Telemetry, dump_readings
from skulkd.peers import Peer
from skulkd.ticking import Ticker
from skulkd.wire.events import Event
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State

TICK_S = 0.1
ALONE_TICK_S = 0.4
GREET_AGAIN_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Changes:
    """Who is told of changes of the state, on the event loop."""

    applied: Callable[[State, Sequence[Entry]], None]
    """These entries were applied, one after the other; the state is the one after the last."""
    replaced: Callable[[State], None]
    """The state is another one now."""
    renamed: Callable[[str], None]
    """This node goes by another name in the cluster."""


@dataclass(frozen=True, slots=True)
class Self:
    """Who this node is to others."""

    node_id: NodeId
    name: str
    version: str
    addresses: Callable[[], Sequence[str]]
    """Where its fabric can be reached, HOST:PORT."""
    protocol: tuple[int, int] = PROTOCOL


class Cluster:
    """Leads at once if nothing is configured that could answer; else `run` finds the others."""

    def __init__(
        self,
        me: Self,
        plan: FabricPlan,
        rules: Rules,
        changes: Changes,
        telemetry: Telemetry,
        file: RecordFile | None = None,
    ) -> None:
        self._me = me
        self._changes = changes
        self._telemetry = telemetry
        self.fabric = Fabric(plan, self)
        self.core = Core(me.node_id, me.name, rules, record=file.load() if file else None)
        self.peers = FabricPeers(me.node_id, self._others, self.fabric.send)
        self._alive: dict[NodeId, float] = {}
        """Nodes whose token lives, and when they are greeted again."""
        self._ticker = Ticker(self._tick, self._pause_s)
        self.greetings: dict[NodeId, Greeting] = {}
        self._refused: set[NodeId] = set()
        self.gone: dict[NodeId, Sequence[str]] = {}
        """Addresses of nodes that were lost and did not say good-bye."""
        self._carrying = False
        self._flush_due = False
        self.down = ""
        """Why this part does not run at the moment; commands are refused then."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._advanced = asyncio.Event()
        self._session = self.core.session
        self._session_since = time.monotonic()
        """When this node learned of the session; used when its master does not say its age."""
        self._saving = (
            Saving(file, lambda: self.core.ledger, self._on_saved) if file is not None else None
        )
        self.commits = Commits(self.core, self._saving, self._after)
        # The command line may have made this node part of nothing but itself.
        self.core.start(time.monotonic(), alone=not (plan.peers or plan.multicast))
        self._carry_out()

    # What the rooms use.

    def append(self, event: Event) -> None:
        """An event of this node; visible in the state when it has been ordered."""
        self.core.append(time.monotonic(), without_words(event))
        self._after()

    def reign(self) -> Reign:
        session = self.core.session
        if session is None:
            return Reign(None, None, self._session_since)
        age_s = session_age_s(self.core)
        since = self._session_since if age_s is None else self.core.now - age_s
        return Reign(session.master, f"{session.master}/{session.clock}", since)

    def master(self) -> NodeId | None:
        session = self.core.session
        return session.master if session is not None and self.core.synced else None

    def decided(self, command: str) -> tuple[int, str] | None:
        return self.core.ledger.answers.get(command)

    @property
    def disk_problem(self) -> str:
        """Why the last write of placements failed; empty when it did not."""
        return self._saving.problem if self._saving is not None else ""

    async def wait_for(self, index: int, deadline_s: float) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                while self.core.ledger.head < index:
                    await self._advanced.wait()
        except TimeoutError:
            log.debug("event %d has not come in %g s", index, deadline_s)

    def publish_readings(self) -> None:
        """Tell the others what this node last read of itself."""
        own = self._telemetry.of(self._me.node_id)
        if own is not None and self._alive:
            self.fabric.publish("readings", encode("readings", dump_readings(own)))

    def readings_pause_s(self, usual_s: float) -> float:
        """Large clusters tell their readings less often, so that the traffic stays bearable."""
        return usual_s * max(1.0, (len(self._alive) + 1) / 16)

    # Its life.

    async def open(self) -> None:
        """Open the fabric. Raises FabricError."""
        await asyncio.to_thread(self.fabric.open, asyncio.get_running_loop())

    async def run(self) -> None:
        """Tick until cancelled."""
        self._loop = asyncio.get_running_loop()
        await self._ticker.run()

    def _pause_s(self) -> float:
        """Who leads nobody but itself has nothing that could be late."""
        alone = not self._alive and self.core.ruling is not None
        return ALONE_TICK_S if alone else TICK_S

    def _tick(self) -> None:
        now = time.monotonic()
        self.core.tick(now)
        for node, at in list(self._alive.items()):
            if now >= at and node not in self.greetings:
                self._greet(node)
        # At once: waiting for more would wake an idle daemon once more for every tick.
        self._carry_out()
        self._flush()
        if self._saving is not None and self.core.synced:
            self._saving.look(now)

    def _on_saved(self, session: Session | None, index: int, problem: str) -> None:
        core = self.core
        if core.role == "following" and session is not None and session == core.session:
            self._say(Stored(session, index, problem), session.master)

    async def leave(self) -> None:
        """Say good-bye, write what must outlive the process, close."""
        self.fabric.publish("beat", encode(kind_of(Bye()), dump(Bye())))
        self.core.membership.leave()
        if self._saving is not None:
            await self._saving.finish()
        await self.peers.stop()
        await asyncio.to_thread(self.fabric.close)

    # What the fabric tells, on the event loop.

    def appeared(self, node: NodeId) -> None:
        self.gone.pop(node, None)
        if node not in self._alive:
            self._alive[node] = 0.0
            self._ticker.hurry()
            self._greet(node)

    def vanished(self, node: NodeId) -> None:
        self._lose(node)

    def received(self, node: NodeId, plane: str, body: bytes) -> None:
        try:
            kind, head, rest = decode(body)
            self._take(node, kind, head, rest)
        except (BadFrame, Unreadable) as error:
            log.debug("%s said something unreadable on %s: %s", node, plane, error)
        self._after()

    def _take(self, node: NodeId, kind: str, head: Head, rest: bytes) -> None:
        if kind == "hello":
            self._on_hello(node, head)
        elif kind == "meet":
            self._on_meet(head)
        elif kind == "readings":
            if node in self.greetings:
                self._telemetry.record_raw(node, rest)
                self.core.following.heard_from(node)
        elif is_message(kind):
            message = load(kind, rest)
            if isinstance(message, Bye):
                self._lose(node, stopped=True)
            elif isinstance(message, Stored):
                self.commits.stored(node, message)
            else:
                self.core.receive(time.monotonic(), node, message)
        elif node in self.greetings:
            self.peers.received(node, kind, head, rest)

    def _greet(self, node: NodeId) -> None:
        self._alive[node] = time.monotonic() + GREET_AGAIN_S
        self.fabric.send(node, self._greeting().frame())

    def _greeting(self) -> Greeting:
        me = self._me
        return Greeting(self.core.roster.name, me.version, tuple(me.addresses()), me.protocol)

    def _on_hello(self, node: NodeId, head: Head) -> None:
        if node not in self._alive:
            return  # It has vanished since, or will be greeted when it appears.
        greeting = read_greeting(head)
        if (reason := why_not(greeting, self._greeting())) is not None:
            if node not in self._refused:
                self._refused.add(node)
                log.warning("%s (%s) does not join: %s", greeting.name, node, reason)
            return
        new = node not in self.greetings
        self.greetings[node] = greeting
        self.core.joined(time.monotonic(), node, greeting.name)
        if new:
            log.info("%s (%s) joined", greeting.name, node)
            self._greet(node)
            own = self._telemetry.of(self._me.node_id)
            if own is not None:
                self.fabric.send(node, encode("readings", dump_readings(own)))

    def _introduce(self, node: NodeId, to: NodeId) -> None:
        greeting = self.greetings.get(to)
        if greeting is not None:
            self.fabric.send(node, encode("meet", nodes={to: list(greeting.addresses)}))

    def _on_meet(self, head: Head) -> None:
        """Somebody sees a node that this one should see, too."""
        nodes = head.get("nodes")
        for node, addresses in (nodes if isinstance(nodes, dict) else {}).items():
            self.missing(NodeId(node), [one for one in addresses if isinstance(one, str)])

    def missing(self, node: NodeId, addresses: Sequence[str]) -> None:
        """A node that is there and has no link to this one; whoever redials will try it."""
        if node != self._me.node_id and node not in self._alive and addresses:
            self.gone.setdefault(node, tuple(addresses))

    def is_met(self, addresses: Sequence[str]) -> bool:
        """Whether the daemon at these addresses is here, whatever its id is now."""
        return any(same_place(addresses, one.addresses) for one in self.greetings.values())

    def lacks_members(self) -> bool:
        """Whether the master sees more nodes than this one."""
        session = self.core.session
        master = self.core.roster.get(session.master) if session is not None else None
        beat = master.beat if master is not None else None
        return beat is not None and beat.members > len(self.core.roster.members) + 1

    def addresses(self) -> dict[NodeId, Sequence[str]]:
        """Where every node that this one sees can be reached."""
        others = {node: greeting.addresses for node, greeting in self.greetings.items()}
        return {self._me.node_id: tuple(self._me.addresses()), **others}

    def _lose(self, node: NodeId, *, stopped: bool = False) -> None:
        greeting = self.greetings.pop(node, None)
        if greeting is not None and not stopped:
            # Whoever was lost there before it was an earlier start of the same daemon.
            self.gone = {
                one: where
                for one, where in self.gone.items()
                if not same_place(where, greeting.addresses)
            }
            self.gone[node] = greeting.addresses
        self._alive.pop(node, None)
        self._refused.discard(node)
        self.core.lost(time.monotonic(), node, stopped=stopped)
        self.commits.lost(node)
        self.peers.lost(node)
        self.fabric.forget(node)
        self._telemetry.forget(node)
        self._after()

    def _others(self) -> list[Peer]:
        return [
            Peer(member.node_id, member.name)
            for member in self.core.roster.members.values()
            if not member.silent
        ]

    # What the state machine wants.

    def _after(self) -> None:
        self._carry_out()
        if not self._flush_due and self._loop is not None:
            self._flush_due = True
            self._loop.call_soon(self._flush_soon)

    def _flush_soon(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        self.core.flush(time.monotonic())
        self._carry_out()

    def _carry_out(self) -> None:
        if self._carrying:
            return  # Whoever is told of a change may append; the loop below goes on with that.
        self._carrying = True
        try:
            while actions := self.core.out.take():
                for action in actions:
                    self._do(action)
            if self.core.session != self._session:
                self._session, self._session_since = self.core.session, time.monotonic()
        finally:
            self._carrying = False

    def _do(self, action: Action) -> None:
        match action:
            case Send():
                self._say(action.message, action.to)
            case Broadcast():
                self._say(action.message, None)
            case Applied():
                self._changes.applied(self.core.ledger.state, action.entries)
                self._advance()
                self._save_commands(action.entries)
            case Replaced():
                self._changes.replaced(self.core.ledger.state)
                self._advance()
            case Lost():
                self.peers.lost(action.node)
            case Introduce():
                self._introduce(action.one, action.other)
                self._introduce(action.other, action.one)
            case Renamed():
                self._changes.renamed(action.name)
                for node in self._alive:
                    self._greet(node)
            case Said():
                log.log(logging.INFO if action.level == "info" else logging.WARNING, action.text)

    def _save_commands(self, entries: Sequence[Entry]) -> None:
        """A follower writes commands at once: their answers wait for it."""
        follows = self.core.role == "following"
        if self._saving is not None and follows and any(entry.command for entry in entries):
            self._saving.save_now()

    def _say(self, message: Message, to: NodeId | None) -> None:
        frame = encode(kind_of(message), dump(message))
        if to is None:
            self.fabric.publish("beat" if isinstance(message, Beat) else "all", frame)
        elif isinstance(message, Beat):
            self.fabric.nudge(to, frame)
        else:
            self.fabric.send(to, frame)

    def _advance(self) -> None:
        advanced, self._advanced = self._advanced, asyncio.Event()
        advanced.set()
