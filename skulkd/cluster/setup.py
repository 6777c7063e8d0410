"""Builds and runs the `ClusterNode` from the settings: listening address, peers, protocol.

A daemon whose API listens on loopback only does the same with its fabric, and calls only configured
peers. Several daemons on one machine share the default port, which only the first can have; the
others use any free port and log it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from skulkd.cluster.cluster import ClusterNode, LocalNode, StateListeners
from skulkd.cluster.disk import RecordFile
from skulkd.cluster.fabric import FabricError, FabricPlan
from skulkd.cluster.handshake import PROTOCOL, parse_protocol
from skulkd.cluster.journal import Journal
from skulkd.cluster.leader import LeaderPolicy, Replan
from skulkd.cluster.redial import ADDRESSES_METHOD
from skulkd.cluster.telemetry import Telemetry
from skulkd.machine.ports import Address, PortTaken, free_port, holder_of, is_free, is_local
from skulkd.settings.running import RunningSettings
from skulkd.settings.tls import cluster_files
from skulkd.wire.config import SkulkConfig, parse_listen
from skulkd.wire.ids import NodeId
from skulkd.wire.machine import NodeNetworkInfo

FABRIC_PORT = 52416
OPEN_ATTEMPTS = 5
DEFAULT_NAMESPACE = "skulk"
PROTOCOL_VARIABLE = "SKULK_TEST_CLUSTER_PROTOCOL"

log = logging.getLogger(__name__)


def fabric_plan(
    settings: RunningSettings, secret: str, api_host: str, node_id: NodeId
) -> FabricPlan:
    """Raises PortTaken when the configured port is taken."""
    config = settings.started.config
    address = _address(config, api_host)
    tailscale = config.connectivity.tailscale.bootstrap_peers if config.connectivity else []
    return FabricPlan(
        node_id=node_id,
        secret=secret,
        namespace=config.cluster.namespace or DEFAULT_NAMESPACE,
        listen=str(address),
        home=settings.sources.paths.data / "cluster",
        peers=list(dict.fromkeys([*config.cluster.peers, *tailscale])),
        multicast=config.cluster.multicast and not is_local(address.host),
        tls=cluster_files(config, settings.sources.environ),
    )


def build_cluster(
    plan: FabricPlan,
    settings: RunningSettings,
    version: str,
    journal: Journal,
    telemetry: Telemetry,
    replan: Replan,
    renamed: Callable[[str], None],
) -> ClusterNode:
    """The node, connected to the journal and not running yet."""
    started, sources = settings.started, settings.sources

    def addresses() -> Sequence[str]:
        own = telemetry.of(plan.node_id)
        return fabric_addresses(cluster.fabric.plan.listen, own.network if own else None)

    cluster = ClusterNode(
        LocalNode(plan.node_id, started.node_name, version, addresses, _protocol(settings)),
        plan,
        LeaderPolicy(replan, started.config.cluster.on_node_loss),
        StateListeners(journal.applied, journal.replaced, renamed),
        telemetry,
        RecordFile(sources.paths.data / "cluster" / "placements.json"),
    )
    journal.connect(cluster.append)
    serve_addresses(cluster)
    return cluster


async def run_cluster(cluster: ClusterNode, config: SkulkConfig) -> None:
    """Join, and stay, until cancelled. Raises FabricError when the fabric cannot be opened."""
    listen = config.cluster.listen
    fixed = listen is not None and parse_listen(listen)[1] != 0
    ticking = asyncio.create_task(cluster.run())
    try:
        if not cluster.fabric.is_open:
            await _open(cluster, fixed=fixed)
            log.info("other nodes reach this one at %s", cluster.fabric.plan.listen)
        await ticking
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


async def _open(cluster: ClusterNode, *, fixed: bool) -> None:
    for _ in range(OPEN_ATTEMPTS):
        try:
            await cluster.open()
        except FabricError as error:
            host, port = parse_listen(cluster.fabric.plan.listen)
            if fixed or is_free(host, port):
                raise
            # Another daemon took the port meanwhile.
            listen = str(Address(host, free_port(host)))
            log.info("%s; using %s instead", error, listen)
            cluster.fabric.plan = replace(cluster.fabric.plan, listen=listen)
        else:
            return
    raise FabricError("no free port was found for the fabric")


def serve_addresses(cluster: ClusterNode) -> None:
    """Serve the addresses of the connected nodes to other nodes."""

    async def answer(_asker: NodeId, _body: bytes) -> bytes:
        return json.dumps(
            {node: list(where) for node, where in cluster.addresses().items()}
        ).encode()

    cluster.peers.serve(ADDRESSES_METHOD, answer)


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


def _address(config: SkulkConfig, api_host: str) -> Address:
    listen = config.cluster.listen
    if listen is not None:
        host, port = parse_listen(listen)
        if port and not is_free(host, port):
            raise PortTaken(
                f"port {port} for other nodes is taken ({listen}), held by {holder_of(port)}.\n"
                f"Stop that process, or choose another: skulkd run --fabric-listen {host}:0"
            )
        return Address(host, port or free_port(host))
    host = "127.0.0.1" if is_local(api_host) else api_host
    if is_free(host, FABRIC_PORT):
        return Address(host, FABRIC_PORT)
    address = Address(host, free_port(host))
    log.info("port %d is taken; other nodes can join with --peer %s", FABRIC_PORT, address)
    return address


def _protocol(settings: RunningSettings) -> tuple[int, int]:
    """This version's, unless a test makes this node one of another version."""
    text = settings.sources.environ.get(PROTOCOL_VARIABLE)
    return parse_protocol(text) if text else PROTOCOL
