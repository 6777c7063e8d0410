"""Who reaches whom. Edges have no tag; their keys tell the kinds apart."""

import re
from typing import Annotated, Any

from pydantic import Field, model_validator

from skulkd.wire.base import CamelModel, SnakeModel, VariantUnion
from skulkd.wire.ids import NodeId

_ADDRESS = re.compile(r"/(ip4|ip6|dns|dns4|dns6)/([^/]+)/(?:tcp|udp)/(\d{1,5})(?:/.*)?")


class Multiaddr(SnakeModel):
    """An address. All but `address` is derived from it, whatever the input says."""

    address: str = Field(description="For example /ip4/192.168.1.6/tcp/52415.")
    address_type: str = ""
    ip_address: str = ""
    port: int = 0

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, data: Any) -> Any:
        address = data.get("address") if isinstance(data, dict) else None
        if not isinstance(address, str):
            return data
        match = _ADDRESS.fullmatch(address)
        if match is None or int(match[3]) > 65535:
            raise ValueError("address should look like /ip4/192.168.1.6/tcp/52415")
        return {
            "address": address,
            "address_type": match[1],
            "ip_address": match[2],
            "port": int(match[3]),
        }


class SocketConnection(CamelModel):
    sink_multiaddr: Multiaddr


class RdmaConnection(CamelModel):
    source_rdma_iface: str
    sink_rdma_iface: str


Edge = Annotated[SocketConnection | RdmaConnection, VariantUnion()]


class Connection(CamelModel):
    """One directed edge with its ends."""

    source: NodeId
    sink: NodeId
    edge: Edge


class Topology(CamelModel):
    nodes: list[NodeId] = Field(default_factory=list)
    connections: dict[NodeId, dict[NodeId, list[Edge]]] = Field(
        default_factory=dict, description="Source, then sink, then the edges between them."
    )
