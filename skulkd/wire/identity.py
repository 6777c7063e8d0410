"""Who answers: `GET /` and `GET /node/identity`."""

from pydantic import Field

from skulkd.wire.base import CamelModel
from skulkd.wire.ids import NodeId


class NodeIdentityAnswer(CamelModel):
    node_id: NodeId
    hostname: str
    ip_address: str = Field(description="First routable IPv4 address, else the host name.")


class ServiceInfo(CamelModel):
    """What answers here, for whoever opens the bare address."""

    name: str = "skulkd"
    version: str
    description: str = "A node of a Skulk inference cluster."
    node_id: NodeId
    node_name: str
    links: dict[str, str] = Field(description="Paths on this node, by what is there.")
