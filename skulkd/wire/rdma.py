"""What a node knows of its Thunderbolt ports and of RDMA over them. Travels between nodes only.

`/state` shows the parts of it that the contract has: ports, edges, the bridge and the switch.
"""

import re
from typing import Literal

from pydantic import Field

from skulkd.wire.base import CamelModel
from skulkd.wire.machine import (
    NodeThunderboltInfo,
    RdmaCtlStatus,
    ThunderboltBridgeStatus,
    ThunderboltInterface,
)

RdmaSwitch = Literal["enabled", "disabled", "absent", "unknown"]
# A Thunderbolt 4 port may list devices, but they do not work: RDMA needs a faster link.
THUNDERBOLT_4_GBPS = 40


class ThunderboltPort(CamelModel):
    """One receptacle, and the Mac at the other end of its cable."""

    receptacle: str
    interface: str | None = Field(default=None, description="For example en3; null: not known.")
    domain_uuid: str | None = Field(default=None, description="The same until the next boot.")
    link_speed: str = ""
    peer_uuid: str | None = Field(default=None, description="Of the port of another Mac.")
    peer_rdma: bool | None = Field(default=None, description="Whether the other Mac has it on.")

    @property
    def rdma_interface(self) -> str:
        return f"rdma_{self.interface}"

    @property
    def gbps(self) -> float:
        """0 when the speed is not told."""
        found = re.search(r"\d+(?:\.\d+)?", self.link_speed)
        return float(found[0]) if found else 0.0


class RdmaDevice(CamelModel):
    """One device as `ibv_devinfo` shows it. Without an IPv4 address JACCL cannot use it."""

    name: str
    active: bool
    ipv4: str | None = None


class NodeRdma(CamelModel):
    """Null is "not read"; `problems` say why."""

    ports: list[ThunderboltPort] | None = Field(
        default=None, description="Null where nothing reads Thunderbolt, as on Linux."
    )
    switch: RdmaSwitch = Field(default="unknown", description="What `rdma_ctl status` says.")
    devices: list[RdmaDevice] | None = None
    bridge: ThunderboltBridgeStatus | None = None
    problems: list[str] = Field(default_factory=list)

    def device(self, port: ThunderboltPort) -> RdmaDevice | None:
        named = (one for one in self.devices or () if one.name == port.rdma_interface)
        return next(named, None)

    def usable(self, port: ThunderboltPort) -> bool:
        """Whether RDMA works over this port, as far as this end can tell."""
        device = self.device(port)
        return (
            self.switch == "enabled"
            and port.gbps > THUNDERBOLT_4_GBPS
            and device is not None
            and device.active
            and device.ipv4 is not None
        )

    def after(self, earlier: "NodeRdma | None") -> "NodeRdma":
        """This reading; cables and ports that could not be read are as they were before.

        The switch is not kept: a status that is not known is not enabled.
        """
        if earlier is None or not self.problems:
            return self
        known = {
            "ports": earlier.ports if self.ports is None else self.ports,
            "devices": earlier.devices if self.devices is None else self.devices,
            "bridge": earlier.bridge if self.bridge is None else self.bridge,
        }
        return self.model_copy(update=known)

    @property
    def identifiers(self) -> NodeThunderboltInfo | None:
        """The ports that have a name and an id, cabled or not."""
        if self.ports is None:
            return None
        return NodeThunderboltInfo(
            interfaces=[
                ThunderboltInterface(
                    rdma_interface=port.rdma_interface,
                    domain_uuid=port.domain_uuid,
                    link_speed=port.link_speed,
                )
                for port in self.ports
                if port.interface is not None and port.domain_uuid is not None
            ]
        )

    @property
    def ctl_status(self) -> RdmaCtlStatus | None:
        """None while the switch is not known: unknown is not enabled."""
        if self.switch not in ("enabled", "disabled"):
            return None
        present = bool(self.devices)
        return RdmaCtlStatus(enabled=self.switch == "enabled", interfaces_present=present)
