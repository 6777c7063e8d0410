"""Which nodes reach each other: every node probes the API addresses of the others.

An address counts when `/node_id` there returns the expected node id, so another machine behind a
stale address is not a link. No secret is sent. The result is telemetry: edges of the topology
with their connection time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from skulkd.peers import PeerError, PeerNode, Peers
from skulkd.ticking import every
from skulkd.wire.ids import NodeId
from skulkd.wire.links import ApiAddress, MeasuredLink
from skulkd.wire.machine import NodeNetworkInfo

METHOD = "node.addresses"
ASK_DEADLINE_S = 5.0
TRY_DEADLINE_S = 3.0
POLL_S = 0.5
ROUND_S = 10.0
# Beyond this number of nodes, rounds get rarer to bound the number of probes.
MANY_NODES = 16
# A link counts as lost after this many failed probes in a row.
MISSES = 3
_KEPT = 5
_ANSWER_LIMIT = 4096
_ADDRESSES = TypeAdapter(list[ApiAddress])
# Nothing secret is sent, and only the id in the answer counts.
_UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_UNVERIFIED.check_hostname = False
_UNVERIFIED.verify_mode = ssl.CERT_NONE

log = logging.getLogger(__name__)


def api_addresses(
    listening: Iterable[tuple[str, int]], network: NodeNetworkInfo | None, *, tls: bool = False
) -> list[ApiAddress]:
    """Where others can try to reach an API that listens there; a wildcard is every interface."""
    interfaces = network.interfaces if network is not None else []
    kinds = {interface.ip_address: interface.interface_type for interface in interfaces}
    found: dict[tuple[str, int], ApiAddress] = {}
    for host, port in listening:
        wanted = ipaddress.ip_address(host)
        hosts = [host]
        if wanted.is_unspecified:
            hosts = [ip for ip in kinds if _usable(ip, wanted.version)]
        for ip in hosts:
            kind = kinds.get(ip, "unknown")
            found[ip, port] = ApiAddress(host=ip, port=port, interface_type=kind, tls=tls)
    return list(found.values())


def _usable(ip: str, version: int) -> bool:
    address = ipaddress.ip_address(ip)
    if address.version != version or address.is_loopback or address.is_unspecified:
        return False
    # A link-local IPv6 address means nothing without this machine's own name for the link.
    return address.version == 4 or not address.is_link_local


async def try_address(address: ApiAddress, node_id: NodeId) -> float | None:
    """Milliseconds that a connection takes; None unless that node answers there."""
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(TRY_DEADLINE_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            took_ms = (time.perf_counter() - begun) * 1000
            try:
                if address.tls:
                    await writer.start_tls(_UNVERIFIED)
                writer.write(b"GET /node_id HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
                answer = await reader.read(_ANSWER_LIMIT)
                while chunk := await reader.read(_ANSWER_LIMIT - len(answer)):
                    answer += chunk
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    found_id = answer.rpartition(b"\r\n\r\n")[2].strip().strip(b'"')
    return took_ms if found_id == node_id.encode() else None


Attempt = Callable[[ApiAddress, NodeId], Awaitable[float | None]]


@dataclass(slots=True)
class _Path:
    """One address of one node, over several rounds."""

    took_ms: list[float] = field(default_factory=list)
    misses: int = 0

    def add(self, took_ms: float | None) -> None:
        if took_ms is None:
            self.misses += 1
            if self.misses >= MISSES:
                self.took_ms.clear()
        else:
            self.misses = 0
            self.took_ms = [*self.took_ms[-(_KEPT - 1) :], took_ms]


@dataclass(slots=True)
class _Known:
    """Another node, when it was last probed, and its addresses."""

    probed_at: float = float("-inf")
    paths: dict[tuple[str, int], tuple[ApiAddress, _Path]] = field(default_factory=dict)


class Reachability:
    """`run` it beside the node; `links` is what it knows now."""

    def __init__(
        self,
        peers: Peers,
        own: Callable[[], Sequence[ApiAddress]],
        *,
        attempt: Attempt = try_address,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._peers = peers
        self.own_addresses = own
        self._try = attempt
        self._clock = clock
        self._known: dict[NodeId, _Known] = {}
        self._jobs: set[asyncio.Task[None]] = set()

        async def answer(_asker: NodeId, _body: bytes) -> bytes:
            return _ADDRESSES.dump_json(list(own()))

        peers.serve(METHOD, answer)

    def links(self) -> list[MeasuredLink]:
        """Addresses that answered lately, fastest first for each node."""
        found = [
            MeasuredLink(
                sink=node_id,
                host=address.host,
                port=address.port,
                interface_type=address.interface_type,
                latency_ms=round(min(path.took_ms), 3),
            )
            for node_id, known in self._known.items()
            for address, path in known.paths.values()
            if path.took_ms
        ]
        return sorted(found, key=lambda link: (link.sink, link.latency_ms))

    async def run(self) -> None:
        """Probe every node when it appears and every few seconds after that."""
        try:
            await every(POLL_S, self.poll)
        finally:
            for job in self._jobs:
                job.cancel()
            await asyncio.gather(*self._jobs, return_exceptions=True)

    def poll(self) -> set[asyncio.Task[None]]:
        """Start probes that are due, and forget nodes that are gone. Returns the running probes."""
        others = self._peers.others()
        present = {peer.node_id for peer in others}
        for node_id in self._known.keys() - present:
            del self._known[node_id]
        now = self._clock()
        round_s = ROUND_S * max(1.0, len(others) / MANY_NODES)
        for peer in others:
            known = self._known.setdefault(peer.node_id, _Known())
            if now - known.probed_at >= round_s:
                known.probed_at = now
                # In its own task: a node that does not answer must not delay other probes.
                job = asyncio.create_task(self._probe(peer, known))
                self._jobs.add(job)
                job.add_done_callback(self._jobs.discard)
        return set(self._jobs)

    async def _probe(self, peer: PeerNode, known: _Known) -> None:
        try:
            answer = await self._peers.ask(peer.node_id, METHOD, b"{}", deadline_s=ASK_DEADLINE_S)
            addresses = _ADDRESSES.validate_json(answer, extra="ignore")
        except (PeerError, ValidationError) as error:
            log.debug("no addresses of %s: %s", peer.name, error)
            addresses = [address for address, _ in known.paths.values()]
        tried = await asyncio.gather(*(self._try(one, peer.node_id) for one in addresses))
        paths: dict[tuple[str, int], tuple[ApiAddress, _Path]] = {}
        for address, took_ms in zip(addresses, tried, strict=True):
            key = (address.host, address.port)
            _, path = known.paths.get(key, (address, _Path()))
            path.add(took_ms)
            paths[key] = (address, path)
        known.paths = paths
