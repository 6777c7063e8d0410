"""How long the planner takes: previews of a model on 4 to 64 fully meshed nodes.

The limit is 100 ms at 64 nodes and growth of at most the third power.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from bench.figures import Figure
from skulkd.placement.candidates import Cluster, cluster_of
from skulkd.placement.previews import previews
from skulkd.placement.wish import Wish
from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.machine import MemoryUsage, NetworkInterfaceInfo, NodeNetworkInfo
from skulkd.wire.state import State
from skulkd.wire.topology import Edge, Multiaddr, SocketConnection, Topology

GIB = 1024**3
SIZES = (4, 8, 16, 32, 64)
REPEATS = 5
CARD = ModelCard(
    model_id=ModelId("bench/model"),
    storage_size=Memory.of(40 * GIB),
    n_layers=80,
    hidden_size=8192,
    supports_tensor=True,
    num_key_value_heads=8,
    tasks=["TextGeneration"],
)


def full_mesh(count: int, *, mixed: bool) -> State:
    """Machines of 16 to 64 GiB that all reach each other; half of them by cable if mixed."""
    nodes = [NodeId(f"node-{index:02}") for index in range(count)]
    addresses = {node: f"10.0.0.{index + 1}" for index, node in enumerate(nodes)}

    def edge(sink: NodeId) -> list[Edge]:
        address = Multiaddr(address=f"/ip4/{addresses[sink]}/tcp/52415")
        return [SocketConnection(sink_multiaddr=address)]

    return State(
        topology=Topology(
            nodes=nodes,
            connections={
                one: {other: edge(other) for other in nodes if other != one} for one in nodes
            },
        ),
        node_memory={node: _memory(16 + index % 4 * 16) for index, node in enumerate(nodes)},
        node_network={
            node: NodeNetworkInfo(
                interfaces=[
                    NetworkInterfaceInfo(
                        name="en0",
                        ip_address=addresses[node],
                        interface_type="wifi" if mixed and index % 2 else "ethernet",
                    )
                ]
            )
            for index, node in enumerate(nodes)
        },
    )


def _memory(gib: int) -> MemoryUsage:
    return MemoryUsage(
        ram_total=Memory.of(gib * GIB),
        ram_available=Memory.of(gib * GIB * 3 // 4),
        swap_total=Memory(),
        swap_available=Memory(),
    )


def best_ms(work: Callable[[], object]) -> float:
    """Processor time of the quickest run: planning waits for nothing, others must not count."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        times.append((time.process_time() - began) * 1000)
    return min(times)


def measure(state: State) -> float:
    """Everything a preview does but reading the request and writing JSON."""

    def once() -> object:
        cluster: Cluster = cluster_of(state, CARD.model_id)
        return previews(Wish(CARD), cluster)

    return best_ms(once)


def run() -> list[Figure]:
    figures = []
    for mixed in (False, True):
        links = "Ethernet and Wi-Fi" if mixed else "Ethernet"
        found = {count: measure(full_mesh(count, mixed=mixed)) for count in SIZES}
        detail = ", ".join(f"{count}: {spent:.1f} ms" for count, spent in found.items())
        exponent = math.log(found[64] / found[16]) / math.log(64 / 16)
        figures += [
            Figure(f"previews on 64 nodes, {links}", found[64], 100, "less", "ms", detail),
            Figure(f"growth from 16 to 64 nodes, {links}", exponent, 3, "less", "(exponent)"),
        ]
    return figures
