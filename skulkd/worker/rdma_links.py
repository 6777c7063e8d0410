"""Tries the RDMA links of a rank before it is started, because MLX would only hang.

Links of a TCP ring are tried by the ranks themselves.
"""

import asyncio

from skulkd.machine.rdma import device_problems
from skulkd.wire.instances import Instance, MlxJacclInstance
from skulkd.wire.topology import RdmaConnection, Topology
from skulkd.worker.group_ports import nodes_by_rank
from skulkd.worker.launching import CannotLaunch


async def try_links(instance: Instance, rank: int, topology: Topology) -> None:
    """Look at the devices of this rank and where they lead now. Raises CannotLaunch."""
    if not isinstance(instance, MlxJacclInstance):
        return
    devices = sorted({name for name in instance.jaccl_devices[rank] if name is not None})
    problems = moved_cables(instance, rank, topology)
    problems += await asyncio.to_thread(device_problems, devices)
    if problems:
        raise CannotLaunch(f"RDMA does not work on this node: {'; '.join(problems)}", later=True)


def moved_cables(instance: MlxJacclInstance, rank: int, topology: Topology) -> list[str]:
    """Devices that lead to another node now. Where one leads is not always known. Pure."""
    nodes = nodes_by_rank(instance)
    leads_to = {
        edge.source_rdma_iface: sink
        for sink, edges in topology.connections.get(nodes[rank], {}).items()
        for edge in edges
        if isinstance(edge, RdmaConnection)
    }
    return [
        f"{device} leads to {leads_to[device]}, not to {node} any more: the cables have changed"
        " since the model was placed; delete the instance and place it again"
        for device, node in zip(instance.jaccl_devices[rank], nodes, strict=True)
        if device is not None and leads_to.get(device, node) != node
    ]
