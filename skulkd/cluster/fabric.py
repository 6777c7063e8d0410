"""The fabric between daemons: the only module that imports zenoh.

It moves authenticated frames: to one node (reliable, in order) and to all nodes (in order, dropped
for a node that does not keep up), and it reports which nodes appear and vanish. It does not know
what the frames mean.

Zenoh calls back on its own threads. They only put into a bounded inbox and wake the event loop.
Sending to one node may block while that node is slow, so each node has a send queue with its own
thread; sending to all never blocks and happens on the calling thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import zenoh

from skulkd.cluster.fabric_setup import (
    ACCEPT_PENDING,
    defer_accept,
    password_file,
    tls_settings,
)
from skulkd.cluster.frame_auth import FrameAuth, ReplayGuard
from skulkd.cluster.send_queue import SendQueue
from skulkd.settings.tls import TlsFiles
from skulkd.wire.config import parse_listen
from skulkd.wire.ids import NodeId

LEASE_MS = 2800
KEEP_ALIVES = 6
INBOX_FRAMES = 16_384
INTRODUCTION_S = 2.0
_USER = "skulk"
# Of two nodes that hear of each other by gossip one dials: when both do at once, each may close the
# link of the other, and gossip does not try again.
_ONE_SIDED = {"peer": {"to_router": "always", "to_peer": "greater-zid"}}
# Closing a link to a machine that was cut off blocks one of Zenoh's threads for ten seconds. With
# its usual two, the nodes that are still there would not be heard meanwhile.
RUNTIME = "(rx: (worker_threads: 24), tx: (worker_threads: 8), net: (worker_threads: 4))"

Plane = Literal["beat", "all", "readings"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Delivery:
    """Delivery of the frames of one plane: priority, and whether a full queue blocks."""

    priority: zenoh.Priority
    blocks: bool = False
    express: bool = False


_DELIVERY = {
    "one": _Delivery(zenoh.Priority.DATA, express=True, blocks=True),
    "nudge": _Delivery(zenoh.Priority.REAL_TIME, express=True),
    "beat": _Delivery(zenoh.Priority.REAL_TIME, express=True),
    "all": _Delivery(zenoh.Priority.INTERACTIVE_HIGH),
    "readings": _Delivery(zenoh.Priority.BACKGROUND),
}
PLANES = tuple(_DELIVERY)
_BLOCK, _DROP = zenoh.CongestionControl.BLOCK, zenoh.CongestionControl.DROP


class FabricError(Exception):
    """The fabric cannot be opened; `str()` says why."""


@dataclass(frozen=True, slots=True)
class FabricPlan:
    """What is fixed before the fabric is opened. `listen` is HOST:PORT with a real port."""

    node_id: NodeId
    secret: str = field(repr=False)
    namespace: str
    listen: str
    home: Path
    """Where the password file is kept, private to this user."""
    peers: Sequence[str] = ()
    multicast: bool = False
    tls: TlsFiles | None = None


class FabricListener(Protocol):
    """Called on the event loop's thread, in the order of arrival."""

    def appeared(self, node: NodeId) -> None: ...

    def vanished(self, node: NodeId) -> None: ...

    def received(self, node: NodeId, plane: str, body: bytes) -> None:
        """`plane` is "one" for a frame to this node alone."""
        ...


@dataclass(slots=True)
class Traffic:
    """Counters since the start."""

    frames_in: int = 0
    bytes_in: int = 0
    frames_out: int = 0
    bytes_out: int = 0
    dropped: int = 0
    forged: int = 0
    replayed: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Frames that could not be sent, by plane."""


class Fabric:
    """One Zenoh session, open from `open` to `close`."""

    def __init__(self, plan: FabricPlan, sink: FabricListener) -> None:
        self.plan = plan
        self.traffic = Traffic()
        self._auth = FrameAuth(plan.secret, plan.namespace)
        self._root = f"skulk/{self._auth.realm}"
        self._listener = sink
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: zenoh.Session | None = None
        self._declared: list[Any] = []
        self._inbox: deque[tuple[str, NodeId, bytes]] = deque()
        self._woken = False
        self._lock = threading.Lock()
        self._send_queues: dict[NodeId, SendQueue] = {}
        self._numbers = itertools.count(1)
        self._replay_guard = ReplayGuard()
        self._password_file: Path | None = None
        self._warned: set[tuple[str, NodeId | None]] = set()
        """Where sending has failed and it was logged."""

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Blocking; call it in a thread. Raises FabricError, also when the port is taken."""
        self._loop = loop
        os.environ.setdefault("ZENOH_RUNTIME", RUNTIME)
        try:
            session = zenoh.open(self._config())
        except zenoh.ZError as error:
            raise FabricError(_reason(error)) from error
        except OSError as error:
            raise FabricError(f"the password file cannot be written: {error}") from error
        self._session = session
        defer_accept(parse_listen(self.plan.listen)[1])
        me = self.plan.node_id
        self._declared = [
            session.declare_subscriber(f"{self._root}/one/{me}/*", self._on_one),
            session.declare_subscriber(f"{self._root}/*/all/*", self._on_all),
            session.liveliness().declare_subscriber(
                f"{self._root}/alive/*", self._on_alive, history=True
            ),
            session.liveliness().declare_token(f"{self._root}/alive/{me}"),
        ]

    @property
    def is_open(self) -> bool:
        return self._session is not None

    def close(self) -> None:
        """Blocking; call it in a thread. Others see this node vanish."""
        for send_queue in list(self._send_queues.values()):
            send_queue.close()
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()  # type: ignore[no-untyped-call]
            except zenoh.ZError as error:
                log.debug("closing the fabric: %s", _reason(error))

    def send(self, node: NodeId, body: bytes) -> bool:
        """To one node, reliable and in order; False when its send queue is full."""
        send_queue = self._send_queues.get(node)
        if send_queue is None:
            send_queue = self._send_queues[node] = SendQueue(node, self._put_one)
        accepted = send_queue.put(body)
        self.traffic.dropped += not accepted
        return accepted

    def nudge(self, node: NodeId, body: bytes) -> None:
        """To one node, ahead of everything else; never blocks, may be dropped."""
        self._put("nudge", node, body)

    def publish(self, plane: Plane, body: bytes) -> None:
        """To every other node; never blocks."""
        self._put(plane, None, body)

    def forget(self, node: NodeId) -> None:
        """The node is gone; what was still to be sent to it is dropped."""
        send_queue = self._send_queues.pop(node, None)
        if send_queue is not None:
            send_queue.close()
        with self._lock:
            self._warned -= {(plane, node) for plane in _DELIVERY}

    def linked(self) -> list[str]:
        """Addresses at the far end of every link."""
        session = self._session
        if session is None:
            return []
        try:
            return [str(link.dst).partition("/")[2] for link in session.info.links()]
        except zenoh.ZError as error:
            log.debug("the links cannot be listed: %s", _reason(error))
            return []

    def introduce(self, addresses: Sequence[str]) -> None:
        """Dial nodes that were lost. Blocking; call it in a thread.

        A running session cannot be told to dial, and gossip dials a node only once. A short-lived
        session that links to both sides makes gossip tell each of the other again.
        """
        config = self._config(listen=(), connect=(self._own_address(), *addresses))
        _insert(config, "scouting/gossip/autoconnect", {"router": [], "peer": []})
        _insert(config, "scouting/multicast/enabled", False)
        try:
            with zenoh.open(config):
                time.sleep(INTRODUCTION_S)
        except zenoh.ZError as error:
            log.debug("introducing %s failed: %s", ", ".join(addresses), _reason(error))

    def _own_address(self) -> str:
        host, _, port = self.plan.listen.rpartition(":")
        everywhere = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared, not bound
        return f"{everywhere.get(host, host)}:{port}"

    def _put_one(self, node: NodeId, body: bytes) -> None:
        self._put("one", node, body)

    def _put(self, plane: str, node: NodeId | None, body: bytes) -> None:
        """The only place that sends. A failure is counted, and logged once per plane and node.

        It is not retried here: whoever needs an answer sends again.
        """
        session, me = self._session, self.plan.node_id
        if session is None:
            return
        key = f"{self._root}/{plane}/all/{me}" if node is None else f"{self._root}/one/{node}/{me}"
        delivery = _DELIVERY[plane]
        try:
            session.put(
                key,
                self._auth.sign(key, next(self._numbers), body),
                congestion_control=_BLOCK if delivery.blocks else _DROP,
                priority=delivery.priority,
                express=delivery.express,
            )
        except zenoh.ZError as error:
            self._failed(plane, node, error)
            return
        with self._lock:
            self.traffic.frames_out += 1
            self.traffic.bytes_out += len(body)

    def _failed(self, plane: str, node: NodeId | None, error: Exception) -> None:
        with self._lock:
            self.traffic.failed[plane] += 1
            first = (plane, node) not in self._warned
            self._warned.add((plane, node))
        if first and self._session is not None:
            target = "all nodes" if node is None else node
            log.warning("cannot send to %s (%s): %s", target, plane, _reason(error))

    # The following run on Zenoh's threads.

    def _on_one(self, sample: zenoh.Sample) -> None:
        key = str(sample.key_expr)
        self._deliver("one", NodeId(key.rpartition("/")[2]), key, sample)

    def _on_all(self, sample: zenoh.Sample) -> None:
        key = str(sample.key_expr)
        parts = key.split("/")
        if parts[-1] != self.plan.node_id:
            self._deliver(parts[-3], NodeId(parts[-1]), key, sample)

    def _on_alive(self, sample: zenoh.Sample) -> None:
        node = NodeId(str(sample.key_expr).rpartition("/")[2])
        if node != self.plan.node_id:
            kind = "appeared" if sample.kind == zenoh.SampleKind.PUT else "vanished"
            self._enqueue(kind, node, b"", force=True)

    def _deliver(self, plane: str, node: NodeId, key: str, sample: zenoh.Sample) -> None:
        opened = self._auth.verify(key, sample.payload.to_bytes())
        if opened is None:
            self.traffic.forged += 1
            return
        number, body = opened
        with self._lock:
            new = self._replay_guard.is_new(key, number, from_the_first=plane == "one")
            self.traffic.replayed += not new
        if new:
            self._enqueue(plane, node, body)

    def _enqueue(self, plane: str, node: NodeId, body: bytes, *, force: bool = False) -> None:
        with self._lock:
            if len(self._inbox) >= INBOX_FRAMES and not force:
                self.traffic.dropped += 1
                return
            self._inbox.append((plane, node, body))
            wake, self._woken = not self._woken, True
        if wake and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        """On the event loop: deliver the inbox, 256 frames at a time."""
        deliver: dict[str, Callable[[NodeId], None]] = {
            "appeared": self._listener.appeared,
            "vanished": self._listener.vanished,
        }
        for _ in range(256):
            with self._lock:
                if not self._inbox:
                    self._woken = False
                    return
                plane, node, body = self._inbox.popleft()
            try:
                if plane in deliver:
                    deliver[plane](node)
                    continue
                self.traffic.frames_in += 1
                self.traffic.bytes_in += len(body)
                self._listener.received(node, plane, body)
            except Exception:
                # One message that cannot be handled must not stop the delivery of others.
                log.exception("handling a message of %s failed (%s)", node, plane)
        if self._loop is not None:
            self._loop.call_soon(self._drain)

    def _config(
        self, listen: Sequence[str] | None = None, connect: Sequence[str] | None = None
    ) -> zenoh.Config:
        plan = self.plan
        scheme = "tls" if plan.tls else "tcp"
        listens = (plan.listen,) if listen is None else listen
        connects = plan.peers if connect is None else connect
        values = {
            "mode": "peer",
            "scouting/multicast/enabled": plan.multicast,
            "scouting/gossip/enabled": True,
            "scouting/gossip/autoconnect_strategy": _ONE_SIDED,
            "scouting/delay": 0,
            "listen/endpoints": [f"{scheme}/{where}" for where in listens],
            "connect/endpoints": [f"{scheme}/{where}" for where in connects],
            "connect/timeout_ms": -1,
            "connect/exit_on_failure": False,
            "connect/retry": {
                "period_init_ms": 250,
                "period_max_ms": 2000,
                "period_increase_factor": 2,
            },
            "open/return_conditions": {"connect_scouted": False, "declares": False},
            "transport/unicast/accept_pending": ACCEPT_PENDING,
            "transport/shared_memory/enabled": False,
            "transport/link/tx/lease": LEASE_MS,
            "transport/link/tx/keep_alive": KEEP_ALIVES,
            "transport/link/tx/queue/size/data": 16,
            "transport/link/tx/queue/size/interactive_high": 16,
            "transport/auth/usrpwd": {
                "user": _USER,
                "password": self._auth.password,
                "dictionary_file": str(self._password()),
            },
        }
        if plan.tls:
            tls = plan.tls
            files = tls_settings(tls.certificate, tls.key, tls.authority)
            values["transport/link/tls"] = files
        config = zenoh.Config()
        for key, value in values.items():
            _insert(config, key, value)
        return config

    def _password(self) -> Path:
        """Written once, because redialling must also work on a full disk."""
        if self._password_file is None:
            file = self.plan.home / f"peers-{self._auth.realm}"
            self._password_file = password_file(file, _USER, self._auth.password)
        return self._password_file


def _insert(config: zenoh.Config, key: str, value: object) -> None:
    config.insert_json5(key, json.dumps(value))


def _reason(error: Exception) -> str:
    """Zenoh's message without the position in its source code."""
    return str(error).partition(" at /")[0]
