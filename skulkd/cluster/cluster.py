"""This node's part in the cluster, on the event loop: the state machine, its clock and its I/O.

Connects `core` (decisions) with the fabric (transport), the replica and the disk. Heartbeats are
sent from the event loop on purpose, so that a node whose loop hangs is detected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skulkd.cluster.actions import (
    Action,
    Broadcast,
    EntriesApplied,
    Introduce,
    LogMessage,
    NodeGone,
    Renamed,
    Send,
    StateReplaced,
)
from skulkd.cluster.codec import UnreadableMessage, dump, is_message, kind_of, load
from skulkd.cluster.commits import Commits
from skulkd.cluster.core import Core
from skulkd.cluster.disk import RecordFile
from skulkd.cluster.fabric import Fabric, FabricPlan
from skulkd.cluster.fabric_peers import FabricPeers
from skulkd.cluster.frames import BadFrame, Head, decode, encode
from skulkd.cluster.handshake import PROTOCOL, NodeHello, incompatibility, parse_hello, same_daemon
from skulkd.cluster.leader import LeaderPolicy
from skulkd.cluster.master_status import MasterStatus, session_age_s
from skulkd.cluster.messages import (
    JournalEntry,
    Leaving,
    MasterSession,
    Message,
    NodeHeartbeat,
    Stored,
)
from skulkd.cluster.record_writer import RecordWriter
from skulkd.cluster.redaction import redacted
from skulkd.cluster.telemetry import Telemetry, dump_readings
from skulkd.peers import PeerNode
from skulkd.ticking import Ticker
from skulkd.wire.events import Event
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State

TICK_S = 0.1
ALONE_TICK_S = 0.4
HELLO_AGAIN_S = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StateListeners:
    """Callbacks for changes of the state, called on the event loop."""

    applied: Callable[[State, Sequence[JournalEntry]], None]
    """These entries were applied, one after the other; the state is the one after the last."""
    replaced: Callable[[State], None]
    """The state was replaced by a snapshot."""
    renamed: Callable[[str], None]
    """This node got another name in the cluster."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """How this node identifies itself to other nodes."""

    node_id: NodeId
    name: str
    version: str
    addresses: Callable[[], Sequence[str]]
    """Where its fabric can be reached, HOST:PORT."""
    protocol: tuple[int, int] = PROTOCOL


class ClusterNode:
    """Becomes master at once if no peers can be found; else `run` looks for them."""

    def __init__(
        self,
        me: LocalNode,
        plan: FabricPlan,
        policy: LeaderPolicy,
        changes: StateListeners,
        telemetry: Telemetry,
        file: RecordFile | None = None,
    ) -> None:
        self._me = me
        self._changes = changes
        self._telemetry = telemetry
        self.fabric = Fabric(plan, self)
        self.core = Core(me.node_id, me.name, policy, record=file.load() if file else None)
        self.peers = FabricPeers(me.node_id, self._others, self.fabric.send)
        self._alive: dict[NodeId, float] = {}
        """Nodes with a liveliness token, and when they are sent the next hello."""
        self._ticker = Ticker(self._tick, self._pause_s)
        self.hellos: dict[NodeId, NodeHello] = {}
        self._refused: set[NodeId] = set()
        self.gone: dict[NodeId, Sequence[str]] = {}
        """Addresses of nodes that were lost without notice."""
        self._performing = False
        self._flush_due = False
        self.down = ""
        """Why the cluster task is not running; commands are refused then. Empty while it runs."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._advanced = asyncio.Event()
        self._session = self.core.session
        self._session_since = time.monotonic()
        """When this node learned of the session; used when the master does not report its age."""
        self._writer = (
            RecordWriter(file, lambda: self.core.journal, self._on_saved)
            if file is not None
            else None
        )
        self.commits = Commits(self.core, self._writer, self._after)
        # The command line may have made this node part of nothing but itself.
        self.core.start(time.monotonic(), alone=not (plan.peers or plan.multicast))
        self._perform_actions()

    # For the rest of the daemon.

    def append(self, event: Event) -> None:
        """An event of this node; visible in the state when it has been ordered."""
        self.core.append(time.monotonic(), redacted(event))
        self._after()

    def master_status(self) -> MasterStatus:
        session = self.core.session
        if session is None:
            return MasterStatus(None, None, self._session_since)
        age_s = session_age_s(self.core)
        since = self._session_since if age_s is None else self.core.now - age_s
        return MasterStatus(session.master, f"{session.master}/{session.clock}", since)

    def master(self) -> NodeId | None:
        session = self.core.session
        return session.master if session is not None and self.core.synced else None

    def decided(self, command: str) -> tuple[int, str] | None:
        return self.core.journal.answers.get(command)

    @property
    def disk_problem(self) -> str:
        """Why the last write of placements failed; empty when it did not."""
        return self._writer.problem if self._writer is not None else ""

    async def wait_for(self, index: int, deadline_s: float) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                while self.core.journal.head < index:
                    await self._advanced.wait()
        except TimeoutError:
            log.debug("event %d has not come in %g s", index, deadline_s)

    def publish_readings(self) -> None:
        """Send this node's latest readings to the other nodes."""
        own = self._telemetry.of(self._me.node_id)
        if own is not None and self._alive:
            self.fabric.publish("readings", encode("readings", dump_readings(own)))

    def readings_pause_s(self, usual_s: float) -> float:
        """Large clusters publish readings less often, which bounds the traffic."""
        return usual_s * max(1.0, (len(self._alive) + 1) / 16)

    # Lifecycle.

    async def open(self) -> None:
        """Open the fabric. Raises FabricError."""
        await asyncio.to_thread(self.fabric.open, asyncio.get_running_loop())

    async def run(self) -> None:
        """Tick until cancelled."""
        self._loop = asyncio.get_running_loop()
        await self._ticker.run()

    def _pause_s(self) -> float:
        """A master without followers sends no heartbeats, so it can tick less often."""
        alone = not self._alive and self.core.leader is not None
        return ALONE_TICK_S if alone else TICK_S

    def _tick(self) -> None:
        now = time.monotonic()
        self.core.tick(now)
        for node, at in list(self._alive.items()):
            if now >= at and node not in self.hellos:
                self._send_hello(node)
        # At once: waiting for more would wake an idle daemon once more for every tick.
        self._perform_actions()
        self._flush()
        if self._writer is not None and self.core.synced:
            self._writer.save_if_due(now)

    def _on_saved(self, session: MasterSession | None, index: int, problem: str) -> None:
        core = self.core
        if core.role == "following" and session is not None and session == core.session:
            self._send_message(Stored(session, index, problem), session.master)

    async def leave(self) -> None:
        """Announce that this node leaves, write the record, close the fabric."""
        self.fabric.publish("beat", encode(kind_of(Leaving()), dump(Leaving())))
        self.core.membership.leave()
        if self._writer is not None:
            await self._writer.finish()
        await self.peers.stop()
        await asyncio.to_thread(self.fabric.close)

    # Callbacks of the fabric, on the event loop.

    def appeared(self, node: NodeId) -> None:
        self.gone.pop(node, None)
        if node not in self._alive:
            self._alive[node] = 0.0
            self._ticker.hurry()
            self._send_hello(node)

    def vanished(self, node: NodeId) -> None:
        self._lose(node)

    def received(self, node: NodeId, plane: str, body: bytes) -> None:
        try:
            kind, head, rest = decode(body)
            self._dispatch(node, kind, head, rest)
        except (BadFrame, UnreadableMessage) as error:
            log.debug("%s said something unreadable on %s: %s", node, plane, error)
        self._after()

    def _dispatch(self, node: NodeId, kind: str, head: Head, rest: bytes) -> None:
        if kind == "hello":
            self._on_hello(node, head)
        elif kind == "meet":
            self._on_meet(head)
        elif kind == "readings":
            if node in self.hellos:
                self._telemetry.record_raw(node, rest)
                self.core.follower.heard_from(node)
        elif is_message(kind):
            message = load(kind, rest)
            if isinstance(message, Leaving):
                self._lose(node, stopped=True)
            elif isinstance(message, Stored):
                self.commits.stored(node, message)
            else:
                self.core.receive(time.monotonic(), node, message)
        elif node in self.hellos:
            self.peers.received(node, kind, head, rest)

    def _send_hello(self, node: NodeId) -> None:
        self._alive[node] = time.monotonic() + HELLO_AGAIN_S
        self.fabric.send(node, self._own_hello().frame())

    def _own_hello(self) -> NodeHello:
        me = self._me
        return NodeHello(self.core.connected.name, me.version, tuple(me.addresses()), me.protocol)

    def _on_hello(self, node: NodeId, head: Head) -> None:
        if node not in self._alive:
            return  # It has vanished since, or will be greeted when it appears.
        hello = parse_hello(head)
        if (reason := incompatibility(hello, self._own_hello())) is not None:
            if node not in self._refused:
                self._refused.add(node)
                log.warning("%s (%s) does not join: %s", hello.name, node, reason)
            return
        new = node not in self.hellos
        self.hellos[node] = hello
        self.core.joined(time.monotonic(), node, hello.name)
        if new:
            log.info("%s (%s) joined", hello.name, node)
            self._send_hello(node)
            own = self._telemetry.of(self._me.node_id)
            if own is not None:
                self.fabric.send(node, encode("readings", dump_readings(own)))

    def _introduce(self, node: NodeId, to: NodeId) -> None:
        hello = self.hellos.get(to)
        if hello is not None:
            self.fabric.send(node, encode("meet", nodes={to: list(hello.addresses)}))

    def _on_meet(self, head: Head) -> None:
        """Another node reports nodes that this one should be linked to."""
        nodes = head.get("nodes")
        for node, addresses in (nodes if isinstance(nodes, dict) else {}).items():
            self.missing(NodeId(node), [one for one in addresses if isinstance(one, str)])

    def missing(self, node: NodeId, addresses: Sequence[str]) -> None:
        """Add a node that has no link to this one; `Redial` will call it."""
        if node != self._me.node_id and node not in self._alive and addresses:
            self.gone.setdefault(node, tuple(addresses))

    def is_connected(self, addresses: Sequence[str]) -> bool:
        """Whether the daemon at these addresses is connected, perhaps under a new node id."""
        return any(same_daemon(addresses, one.addresses) for one in self.hellos.values())

    def lacks_members(self) -> bool:
        """Whether the master sees more nodes than this one."""
        session = self.core.session
        master = self.core.connected.get(session.master) if session is not None else None
        heartbeat = master.heartbeat if master is not None else None
        return heartbeat is not None and heartbeat.members > len(self.core.connected.members) + 1

    def addresses(self) -> dict[NodeId, Sequence[str]]:
        """Fabric addresses of every connected node, this one included."""
        others = {node: hello.addresses for node, hello in self.hellos.items()}
        return {self._me.node_id: tuple(self._me.addresses()), **others}

    def _lose(self, node: NodeId, *, stopped: bool = False) -> None:
        hello = self.hellos.pop(node, None)
        if hello is not None and not stopped:
            # An entry with the same addresses is an earlier start of the same daemon.
            self.gone = {
                one: where
                for one, where in self.gone.items()
                if not same_daemon(where, hello.addresses)
            }
            self.gone[node] = hello.addresses
        self._alive.pop(node, None)
        self._refused.discard(node)
        self.core.lost(time.monotonic(), node, stopped=stopped)
        self.commits.lost(node)
        self.fabric.forget(node)
        self._telemetry.forget(node)
        self._after()

    def _others(self) -> list[PeerNode]:
        return [
            PeerNode(member.node_id, member.name)
            for member in self.core.connected.members.values()
            if not member.silent
        ]

    # Actions of the state machine.

    def _after(self) -> None:
        self._perform_actions()
        if not self._flush_due and self._loop is not None:
            self._flush_due = True
            self._loop.call_soon(self._flush_soon)

    def _flush_soon(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        self.core.flush(time.monotonic())
        self._perform_actions()

    def _perform_actions(self) -> None:
        if self._performing:
            return  # A listener appended an event; the running loop performs it.
        self._performing = True
        try:
            while actions := self.core.out.drain():
                for action in actions:
                    self._perform(action)
            if self.core.session != self._session:
                self._session, self._session_since = self.core.session, time.monotonic()
        finally:
            self._performing = False

    def _perform(self, action: Action) -> None:
        match action:
            case Send():
                self._send_message(action.message, action.to)
            case Broadcast():
                self._send_message(action.message, None)
            case EntriesApplied():
                self._changes.applied(self.core.journal.state, action.entries)
                self._advance()
                self._save_commands(action.entries)
            case StateReplaced():
                self._changes.replaced(self.core.journal.state)
                self._advance()
            case NodeGone():
                self.peers.lost(action.node)
            case Introduce():
                self._introduce(action.first, action.second)
                self._introduce(action.second, action.first)
            case Renamed():
                self._changes.renamed(action.name)
                for node in self._alive:
                    self._send_hello(node)
            case LogMessage():
                log.log(logging.INFO if action.level == "info" else logging.WARNING, action.text)

    def _save_commands(self, entries: Sequence[JournalEntry]) -> None:
        """A follower writes commands at once, because the master waits for its confirmation."""
        follows = self.core.role == "following"
        if self._writer is not None and follows and any(entry.command for entry in entries):
            self._writer.save_now()

    def _send_message(self, message: Message, to: NodeId | None) -> None:
        frame = encode(kind_of(message), dump(message))
        if to is None:
            self.fabric.publish("beat" if isinstance(message, NodeHeartbeat) else "all", frame)
        elif isinstance(message, NodeHeartbeat):
            self.fabric.nudge(to, frame)
        else:
            self.fabric.send(to, frame)

    def _advance(self) -> None:
        advanced, self._advanced = self._advanced, asyncio.Event()
        advanced.set()
