"""What a node measured of its way to another one. Telemetry: never in the journal."""

from pydantic import Field

from skulkd.wire.base import CamelModel
from skulkd.wire.ids import NodeId
from skulkd.wire.machine import InterfaceType


class ApiAddress(CamelModel):
    """Where a node says that its API can be reached."""

    host: str = Field(description="An IP address.")
    port: int
    interface_type: InterfaceType = "unknown"
    # Left out when false: nodes of an older version do not know the key.
    tls: bool = Field(
        default=False,
        exclude_if=lambda tls: not tls,
        description="It speaks HTTPS there, not HTTP.",
    )


class MeasuredLink(CamelModel):
    """An address of another node that answered with that node's id."""

    sink: NodeId
    host: str
    port: int
    interface_type: InterfaceType = Field(
        default="unknown", description="Kind of the interface at the far end."
    )
    latency_ms: float = Field(description="Fastest lately; one connection set up and accepted.")
