"""Answer to "who are you": `GET /node/identity`."""

from pydantic import Field

from skulkd.wire.base import CamelModel
from skulkd.wire.ids import NodeId


class NodeIdentityAnswer(CamelModel):
    node_id: NodeId
    hostname: str
    ip_address: str = Field(description="First routable IPv4 address, else the host name.")
