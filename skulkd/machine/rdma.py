"""RDMA over Thunderbolt on this machine: ports, the switch, devices and the bridge in one reading.

Every tool may be missing or fail alone; the rest is still read. JACCL runs on macOS only, so a
machine without `networksetup` has none of it, whatever InfiniBand it has.
"""

import ipaddress
import re
import shutil
from collections.abc import Callable, Iterable
from typing import TypeVar

from skulkd.machine.thunderbolt import (
    PORTS_COMMAND,
    read_bridge,
    read_hardware_ports,
    read_ports,
)
from skulkd.machine.tools import ToolError, ToolFailed, ToolMissing, run_tool
from skulkd.wire.rdma import NodeRdma, RdmaDevice, RdmaSwitch

TIMEOUT_S = 5.0
NO_DEVICES = "No IB devices found"
T = TypeVar("T")


def read_rdma() -> NodeRdma:
    """Everything about RDMA that can be read here; what cannot be read is a problem in it."""
    if shutil.which(PORTS_COMMAND[0]) is None:
        return NodeRdma(switch="absent")
    problems: list[str] = []
    hardware = _tried(read_hardware_ports, problems)
    ports = _tried(lambda: read_ports(hardware or {}), problems)
    bridge = _tried(lambda: read_bridge(hardware or {}), problems)
    switch = _tried(read_switch, problems)
    return NodeRdma(
        ports=ports,
        switch=switch or "unknown",
        devices=_tried(read_devices, problems),
        bridge=bridge,
        problems=problems,
    )


def read_switch() -> RdmaSwitch:
    """What `rdma_ctl status` says, by the exact word. Raises ToolError."""
    try:
        text = run_tool(["rdma_ctl", "status"], TIMEOUT_S).strip()
    except ToolMissing:
        return "absent"
    match text:
        case "enabled" | "disabled":
            return text
        case _:
            raise ToolError(f"rdma_ctl: its answer is not known: {text[:80]!r}")


def read_devices() -> list[RdmaDevice]:
    """RDMA devices with state and address. Raises ToolError."""
    try:
        return parse_devices(run_tool(["ibv_devinfo", "-v"], TIMEOUT_S))
    except ToolFailed as error:
        if NO_DEVICES in error.output:
            return []
        raise


def parse_devices(text: str) -> list[RdmaDevice]:
    """Read `ibv_devinfo -v`; a device without a state is not active."""
    blocks = re.split(r"^hca_id:\s*", text, flags=re.MULTILINE)[1:]
    return [_parse_device(block) for block in blocks]


def device_problems(wanted: Iterable[str]) -> list[str]:
    """What keeps a group from using these devices now; nothing when all of them work."""
    try:
        found = {device.name: device for device in read_devices()}
    except ToolError as error:
        return [f"RDMA devices cannot be listed: {error}"]
    return [why for name in wanted if (why := _problem(name, found.get(name))) is not None]


def _problem(name: str, device: RdmaDevice | None) -> str | None:
    if device is None:
        return f"{name} is not there: is RDMA still enabled (rdma_ctl status)?"
    if not device.active:
        return f"{name} is down: no cable, no Mac at its other end, or RDMA is off there"
    if device.ipv4 is None:
        interface = name.removeprefix("rdma_")
        return f"{interface} has no IPv4 address, which RDMA needs; is it in a bridge?"
    return None


def _parse_device(block: str) -> RdmaDevice:
    gids = re.findall(r"GID\[\s*\d+\]:\s*([0-9A-Fa-f:.]+)", block)
    return RdmaDevice(
        name=block.split(maxsplit=1)[0],
        active=re.search(r"^\s*state:\s*PORT_ACTIVE\b", block, re.MULTILINE) is not None,
        ipv4=next(filter(None, map(_mapped_ipv4, gids)), None),
    )


def _mapped_ipv4(gid: str) -> str | None:
    """The GID of an IPv4 address is that address in IPv6's notation for it."""
    try:
        mapped = ipaddress.IPv6Address(gid).ipv4_mapped
    except ValueError:
        return None
    return None if mapped is None else str(mapped)


def _tried(read: Callable[[], T], problems: list[str]) -> T | None:
    """None when it cannot be read; a tool that is not there is no problem."""
    try:
        return read()
    except ToolMissing:
        return None
    except ToolError as error:
        problems.append(str(error))
        return None
