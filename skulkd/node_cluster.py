"""This node's part in the cluster, built from the settings; where its fabric listens.

A daemon whose API is for this machine only keeps its fabric here, too, and calls nobody it was
not told of. Several daemons on one machine share nothing but the usual port, which only the
first can have: the others take any free one and say so.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
import time
from collections.abc import Sequence
from dataclasses import replace

from skulkd.api.auth import is_loopback
from skulkd.api.journal import Journal
from skulkd.api.listen import Address, holder_of
from skulkd.api.services import Identity
from skulkd.cluster.cluster import Changes, Cluster, Self
from skulkd.cluster.disk import RecordFile
from skulkd.cluster.fabric import FabricError, FabricPlan
from skulkd.cluster.greeting import PROTOCOL, parse_protocol
from skulkd.cluster.ruling import Replan, Rules
from skulkd.cluster.telemetry import Telemetry
from skulkd.node_redial import ROSTER, Redial, tell_refusal
from skulkd.node_start import EXIT_PORT_TAKEN, Start, StartError
from skulkd.settings.tls import cluster_files
from skulkd.wire.config import parse_listen
from skulkd.wire.ids import NodeId
from skulkd.wire.machine import NodeNetworkInfo

FABRIC_PORT = 52416
ATTEMPTS = 5
REFUSED_AFTER_S = 5.0
LOOK_S = 1.0
DEFAULT_NAMESPACE = "skulk"
PROTOCOL_VARIABLE = "SKULK_TEST_CLUSTER_PROTOCOL"

log = logging.getLogger(__name__)


def fabric_plan(start: Start, node_id: NodeId) -> FabricPlan:
    """Raises StartError when the port is taken that was asked for."""
    settings = start.settings
    config = settings.started.config
    address = _address(start)
    tailscale = config.connectivity.tailscale.bootstrap_peers if config.connectivity else []
    return FabricPlan(
        node_id=node_id,
        secret=start.secret.value,
        namespace=config.cluster.namespace or DEFAULT_NAMESPACE,
        listen=str(address),
        home=settings.sources.paths.data / "cluster",
        peers=list(dict.fromkeys([*config.cluster.peers, *tailscale])),
        multicast=config.cluster.multicast and not _local(address.host),
        tls=cluster_files(config, settings.sources.environ),
    )


def build_cluster(
    start: Start, identity: Identity, journal: Journal, telemetry: Telemetry, replan: Replan
) -> Cluster:
    plan = fabric_plan(start, identity.node_id)
    paths = start.settings.sources.paths

    def addresses() -> Sequence[str]:
        own = telemetry.of(identity.node_id)
        listen = cluster.fabric.plan.listen
        return fabric_addresses(listen, own.network if own else None)

    def renamed(name: str) -> None:
        log.warning("the name %s is taken; this node is called %s", identity.name, name)
        identity.name = name

    cluster = Cluster(
        Self(identity.node_id, identity.name, identity.version, addresses, _protocol(start)),
        plan,
        Rules(replan, start.settings.started.config.cluster.on_node_loss),
        Changes(journal.applied, journal.replaced, renamed),
        telemetry,
        RecordFile(paths.data / "cluster" / "placements.json"),
    )
    journal.through(cluster.append)
    serve_roster(cluster)
    return cluster


async def run_cluster(cluster: Cluster, start: Start) -> None:
    """Join, and stay, until cancelled. Raises FabricError when the fabric cannot be opened."""
    wanted = start.settings.started.config.cluster.listen
    fixed = wanted is not None and parse_listen(wanted)[1] != 0
    ticking = asyncio.create_task(cluster.run())
    try:
        if not cluster.fabric.is_open:
            await _open(cluster, fixed=fixed)
            log.info("other nodes reach this one at %s", cluster.fabric.plan.listen)
        await ticking
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


async def keep_links(cluster: Cluster, start: Start) -> None:
    """Call nodes that were lost, and say why nobody lets this one in; until cancelled."""
    secret_origin = start.secret.origin.text
    redial = Redial(cluster)
    opened: float | None = None
    told = not cluster.fabric.plan.peers
    while True:
        await asyncio.sleep(LOOK_S)
        if not cluster.fabric.is_open:
            continue
        opened = opened or time.monotonic()
        if not told and time.monotonic() - opened >= REFUSED_AFTER_S:
            told = await tell_refusal(cluster, secret_origin)
        await redial.look()


async def _open(cluster: Cluster, *, fixed: bool) -> None:
    for _ in range(ATTEMPTS):
        try:
            await cluster.open()
        except FabricError as error:
            host, port = parse_listen(cluster.fabric.plan.listen)
            if fixed or _is_free(host, port):
                raise
            # Another daemon that started at the same moment was faster.
            listen = str(Address(host, _free_port(host)))
            log.info("%s; taking %s instead", error, listen)
            cluster.fabric.plan = replace(cluster.fabric.plan, listen=listen)
        else:
            return
    raise FabricError("no free port was found for the fabric")


def serve_roster(cluster: Cluster) -> None:
    """Tell others where the nodes are that this one sees."""

    async def answer(_asker: NodeId, _body: bytes) -> bytes:
        return json.dumps(
            {node: list(where) for node, where in cluster.addresses().items()}
        ).encode()

    cluster.peers.serve(ROSTER, answer)


def fabric_addresses(listen: str, network: NodeNetworkInfo | None) -> list[str]:
    """Where others may try to reach a fabric that listens there."""
    host, port = parse_listen(listen)
    if host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return [listen]
    version = 4 if host == "0.0.0.0" else 6  # noqa: S104
    found = []
    for interface in network.interfaces if network else []:
        ip = ipaddress.ip_address(interface.ip_address.partition("%")[0])
        if ip.version == version and not (ip.is_loopback or ip.is_link_local):
            found.append(str(Address(str(ip), port)))
    return found


def _address(start: Start) -> Address:
    wanted = start.settings.started.config.cluster.listen
    if wanted is not None:
        host, port = parse_listen(wanted)
        if port and not _is_free(host, port):
            who = holder_of(port) or "a process this user cannot see"
            lines = [
                f"port {port} for other nodes is taken ({wanted}), held by {who}.",
                f"Stop that process, or choose another: skulkd run --fabric-listen {host}:0",
            ]
            raise StartError(EXIT_PORT_TAKEN, lines)
        return Address(host, port or _free_port(host))
    api = start.address.host
    host = "127.0.0.1" if _local(api) else api
    if _is_free(host, FABRIC_PORT):
        return Address(host, FABRIC_PORT)
    port = _free_port(host)
    log.info(
        "port %d is taken; other nodes can join with --peer %s", FABRIC_PORT, Address(host, port)
    )
    return Address(host, port)


def _local(host: str) -> bool:
    return host == "localhost" or is_loopback(host)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(1)
    except OSError:
        sock.close()
        raise
    return sock


def _is_free(host: str, port: int) -> bool:
    try:
        _bound(host, port).close()
    except OSError:
        return False
    return True


def _free_port(host: str) -> int:
    with _bound(host, 0) as sock:
        port: int = sock.getsockname()[1]
        return port


def _protocol(start: Start) -> tuple[int, int]:
    """This version's, unless a test makes this node one of another version."""
    told = start.settings.sources.environ.get(PROTOCOL_VARIABLE)
    return parse_protocol(told) if told else PROTOCOL
