"""Limits how many connections of each address reach the TLS listener of the fabric (Linux).

Zenoh's TLS listener pauses for 100 ms after every failed handshake, and no setting of Zenoh changes
that: 400 connections that send garbage would keep other nodes out for 40 s. The gate leaves new
connections in the kernel and admits them by address, as many as the budget of the address allows.
Must not know what is sent over the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from skulkd.cluster.accept_filter import (
    Pending,
    attach,
    detach,
    dropped,
    pending_connections,
    program,
)
from skulkd.cluster.fabric import Fabric
from skulkd.cluster.fabric_setup import find_listener, listener_on
from skulkd.wire.config import parse_listen

TICK_S = 0.1
"""Less than the 200 ms after which a waiting connection sends again."""
BURST = 8
PER_SECOND = 2.0
"""The budget of an address: connections at once, and two more each second."""
ADMITTED_S = 5.0
"""An admitted connection that has sent nothing in that time has used its chance."""
MOST_ADMITTED = 64
"""A jump in the filter reaches 255 instructions far, one for each port."""
MOST_WAITING = 32
"""An address with more waiting connections is refused new ones."""
MOST_REFUSED = 64
QUEUE = 4096
SYN_ACK_RETRIES = 3
"""A connection that is not admitted is dropped by the kernel after 15 s."""
WARN_EVERY_S = 60.0
NAMED = 5
"""Addresses in a warning."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Budget:
    left: float
    at: float

    def refill(self, now: float) -> int:
        self.left = min(BURST, self.left + (now - self.at) * PER_SECOND)
        self.at = now
        return int(self.left)


@dataclass(slots=True)
class Admission:
    """Which waiting connections may be accepted. Pure: no I/O, no clock of its own."""

    admitted: dict[Pending, float] = field(default_factory=dict)
    """Since when."""
    refused: frozenset[bytes] = frozenset()
    """Hosts whose new connections are not answered."""
    is_busy: bool = False
    """Something waits: decide again even if nobody new has come."""
    _used: set[Pending] = field(default_factory=set)
    _budgets: dict[bytes, _Budget] = field(default_factory=dict)

    def update(self, pending: Collection[Pending], now: float) -> bool:
        """Decide again from all connections that wait; True if the decision changed."""
        before = (set(self.admitted), self.refused)
        self.is_busy = bool(pending)
        self._forget(frozenset(pending), now)
        waiting: dict[bytes, list[Pending]] = defaultdict(list)
        for one in pending:
            waiting[one.host].append(one)
        crowded = [host for host, of_host in waiting.items() if len(of_host) > MOST_WAITING]
        self.refused = frozenset(crowded[:MOST_REFUSED])
        known = self._used | self.admitted.keys()
        # Hosts with few connections first: strangers with many cannot use up the room.
        for host in sorted(waiting, key=lambda one: len(waiting[one])):
            self._admit(host, [one for one in waiting[host] if one not in known], now)
        return before != (set(self.admitted), self.refused)

    def _forget(self, pending: frozenset[Pending], now: float) -> None:
        late = {one for one, since in self.admitted.items() if now - since > ADMITTED_S}
        self._used = (self._used | late) & pending
        self.admitted = {
            one: since for one, since in self.admitted.items() if one in pending and one not in late
        }
        self._budgets = {
            host: budget for host, budget in self._budgets.items() if budget.refill(now) < BURST
        }

    def _admit(self, host: bytes, fresh: list[Pending], now: float) -> None:
        room = MOST_ADMITTED - len(self.admitted)
        budget = self._budgets.setdefault(host, _Budget(BURST, now))
        chosen = fresh[: max(0, min(budget.refill(now), room))]
        budget.left -= len(chosen)
        self.admitted.update(dict.fromkeys(chosen, now))


async def admit_connections(fabric: Fabric) -> None:
    """Run the gate in front of the fabric's listener until cancelled."""
    if not _is_possible():
        await asyncio.Event().wait()
    gate: AcceptGate | None = None
    try:
        while True:
            if fabric.is_open:
                port = parse_listen(fabric.plan.listen)[1]
                gate = gate if gate is not None and gate.port == port else AcceptGate(port)
                gate.tick(time.monotonic())
            await asyncio.sleep(TICK_S)
    finally:
        if gate is not None:
            gate.end()


def _is_possible() -> bool:
    if sys.platform != "linux":
        return False
    try:
        pending_connections(socket.AF_INET, 0)
    except OSError as error:
        log.info("connections to the cluster port are not limited by address: %s", error)
        return False
    return True


class AcceptGate:
    """The gate of one port, on the socket of this process that listens there."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._descriptor: int | None = None
        self._admission = Admission()
        self._dropped = 0
        self._warned_at = -WARN_EVERY_S

    def tick(self, now: float) -> None:
        """Admit what waits. A socket without a filter gets one. Raises OSError."""
        with listener_on(self.port, self._descriptor) as sock:
            if sock is not None:
                self._admit(sock, now)
                return
        self._descriptor, self._admission = find_listener(self.port), Admission()
        with listener_on(self.port, self._descriptor) as sock:
            if sock is not None:
                self._close(sock)

    def end(self) -> None:
        """Let everything pass, as without a gate."""
        with (
            listener_on(self.port, self._descriptor) as sock,
            contextlib.suppress(OSError),  # it has no filter
        ):
            if sock is not None:
                detach(sock)

    def _close(self, sock: socket.socket) -> None:
        sock.listen(QUEUE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, SYN_ACK_RETRIES)
        self._dropped = dropped(sock)
        attach(sock, program((), ()))

    def _admit(self, sock: socket.socket, now: float) -> None:
        count, admission = dropped(sock), self._admission
        if count == self._dropped and not admission.is_busy:
            return
        self._dropped = count
        if admission.update(pending_connections(sock.family, self.port), now):
            attach(sock, program(admission.admitted, admission.refused))
            self._warn(now)

    def _warn(self, now: float) -> None:
        """One line a minute at most: strangers cannot fill the log."""
        refused = self._admission.refused
        if not refused or now - self._warned_at < WARN_EVERY_S:
            return
        self._warned_at = now
        log.warning(
            "more than %d unauthenticated connections to the cluster port wait from %s;"
            " new ones are refused",
            MOST_WAITING,
            ", ".join(sorted(str(ipaddress.ip_address(one)) for one in refused)[:NAMED]),
        )
