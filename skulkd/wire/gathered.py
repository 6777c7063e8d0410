"""Readings that change the replicated state when a node reports them."""

from typing import Annotated

from skulkd.wire.base import CamelModel, TaggedModel, VariantUnion
from skulkd.wire.machine import NetworkInterfaceInfo, ThunderboltBridgeStatus, ThunderboltInterface


class NodeNetworkInterfaces(TaggedModel):
    interfaces: list[NetworkInterfaceInfo]


class MacThunderboltIdentifiers(TaggedModel):
    interfaces: list[ThunderboltInterface]


class ThunderboltConnection(CamelModel):
    """A cable, by the domain ids of its two ends."""

    source_uuid: str
    sink_uuid: str


class MacThunderboltConnections(TaggedModel):
    connections: list[ThunderboltConnection]


class ThunderboltBridgeInfo(TaggedModel):
    status: ThunderboltBridgeStatus


GatheredInfo = Annotated[
    NodeNetworkInterfaces
    | MacThunderboltIdentifiers
    | MacThunderboltConnections
    | ThunderboltBridgeInfo,
    VariantUnion(),
]
