"""Thunderbolt ports of a Mac, the Mac at the other end of each, and the bridge over them.

Knows nothing of RDMA. Where the tools are missing, as on Linux, there is nothing to read.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from skulkd.machine.network import parse_hardware_ports
from skulkd.machine.tools import ToolError, run_tool
from skulkd.wire.machine import ThunderboltBridgeStatus
from skulkd.wire.rdma import ThunderboltPort

# The profiler is slow on a busy machine, and while a cable is being plugged in.
PROFILER_TIMEOUT_S = 20.0
NETWORKSETUP_TIMEOUT_S = 5.0
PORTS_COMMAND = ("networksetup", "-listallhardwareports")
PROFILER_COMMAND = ("system_profiler", "SPThunderboltDataType", "-json")
SERVICES_COMMAND = ("networksetup", "-listnetworkserviceorder")
# A Mac with RDMA enabled offers this service to the Mac at the other end of the cable.
RDMA_SERVICE_ID = 64087

NO_BRIDGE = ThunderboltBridgeStatus(enabled=False, exists=False)


def read_hardware_ports() -> dict[str, str]:
    """Device → port name. Raises ToolError."""
    return parse_hardware_ports(run_tool(PORTS_COMMAND, NETWORKSETUP_TIMEOUT_S))


def read_ports(hardware: Mapping[str, str]) -> list[ThunderboltPort]:
    """Every Thunderbolt port, in the order of the tool. Raises ToolError."""
    return parse_ports(run_tool(PROFILER_COMMAND, PROFILER_TIMEOUT_S), hardware)


def parse_ports(text: str, hardware: Mapping[str, str]) -> list[ThunderboltPort]:
    """Read `system_profiler SPThunderboltDataType -json`; `hardware` maps device → port name.

    Interface numbers follow no rule, so ports are joined by name. One that cannot be joined, or
    has no id, stays in the list without it.
    """
    try:
        buses = list(json.loads(text)["SPThunderboltDataType"])
    except (ValueError, LookupError, TypeError) as error:
        raise ToolError("system_profiler: its answer is not the expected JSON") from error
    devices = {port: device for device, port in hardware.items()}
    return [port for bus in buses if isinstance(bus, dict) for port in _ports_of(bus, devices)]


def _ports_of(bus: dict[str, Any], devices: Mapping[str, str]) -> Iterator[ThunderboltPort]:
    """One port per tag. Intel buses have two receptacles and tell not which of them is linked."""
    tags = [value for key, value in sorted(bus.items()) if re.fullmatch(r"receptacle_\d+_tag", key)]
    peer = _peer_of(bus) if len(tags) == 1 else None
    for tag in tags:
        receptacle = str(tag.get("receptacle_id_key", "")) if isinstance(tag, dict) else ""
        if not receptacle:
            continue
        yield ThunderboltPort(
            receptacle=receptacle,
            interface=devices.get(f"Thunderbolt {receptacle}"),
            domain_uuid=_text(bus, "domain_uuid_key") if len(tags) == 1 else None,
            link_speed=_text(tag, "current_speed_key") or "",
            peer_uuid=None if peer is None else _text(peer, "domain_uuid_key"),
            peer_rdma=None if peer is None else _offers_rdma(peer),
        )


def _peer_of(bus: dict[str, Any]) -> dict[str, Any] | None:
    """The Mac on this bus. Docks and disks are items too, but have no domain of their own."""
    items = bus.get("_items")
    macs = (
        item
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict) and _text(item, "domain_uuid_key") is not None
    )
    return next(macs, None)


def _offers_rdma(peer: dict[str, Any]) -> bool | None:
    services = peer.get("services_title")
    if not isinstance(services, list):
        return None
    ids = {one.get("protocol_id_key") for one in services if isinstance(one, dict)}
    return RDMA_SERVICE_ID in ids


def _text(entry: dict[str, Any], key: str) -> str | None:
    value = entry.get(key)
    return value if isinstance(value, str) and value else None


def read_bridge(hardware: Mapping[str, str]) -> ThunderboltBridgeStatus:
    """The bridge over Thunderbolt ports, whatever its service is called. Raises ToolError."""
    members = {device for device, port in hardware.items() if port.startswith("Thunderbolt")}
    services = parse_services(run_tool(SERVICES_COMMAND, NETWORKSETUP_TIMEOUT_S))
    for device, name in services.items():
        if device.startswith("bridge") and _members(device) & members:
            return ThunderboltBridgeStatus(
                enabled=_is_enabled(name), exists=True, service_name=name
            )
    return NO_BRIDGE


def parse_services(text: str) -> dict[str, str]:
    """Device → name of the service, from `networksetup -listnetworkserviceorder`."""
    pairs = re.findall(
        r"^\((?:\d+|\*)\) (.+)\n\(Hardware Port: .*, Device: (\S+)\)$", text, re.MULTILINE
    )
    return {device: name.strip() for name, device in pairs}


def parse_bridge_members(text: str) -> set[str]:
    """The interfaces that `ifconfig bridge0` lists."""
    return set(re.findall(r"^\s+member: (\S+)", text, re.MULTILINE))


def _members(bridge: str) -> set[str]:
    try:
        return parse_bridge_members(run_tool(["ifconfig", bridge], NETWORKSETUP_TIMEOUT_S))
    except ToolError:
        return set()  # the service is listed, but there is no such interface


def _is_enabled(service: str) -> bool:
    """Off when the tool does not tell, as the contract has it."""
    command = ["networksetup", "-getnetworkserviceenabled", service]
    try:
        return run_tool(command, NETWORKSETUP_TIMEOUT_S).strip() == "Enabled"
    except ToolError:
        return False
