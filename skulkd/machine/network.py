"""Network interfaces of this machine with their addresses and kind of link.

Knows nothing of peers; whoever asks decides which addresses are worth a try.
"""

import ipaddress
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from skulkd.machine.sysfs import link_name, read_int
from skulkd.machine.tools import run_tool
from skulkd.wire.machine import InterfaceType, NetworkInterfaceInfo, NodeNetworkInfo

NETWORKSETUP_TIMEOUT_S = 2.0
ARPHRD_ETHER = 1
IP_FAMILIES = {socket.AF_INET, socket.AF_INET6}


def read_network(root: Path = Path("/"), platform: str = sys.platform) -> NodeNetworkInfo:
    """Every address of every interface that is up, hardware interfaces first."""
    up = [name for name, stat in psutil.net_if_stats().items() if stat.isup]
    kinds = _macos_kinds(up) if platform == "darwin" else _linux_kinds(up, root)
    addresses = {
        label: [entry.address for entry in entries if entry.family in IP_FAMILIES]
        for label, entries in psutil.net_if_addrs().items()
    }
    return list_interfaces(addresses, kinds)


def list_interfaces(
    addresses: Mapping[str, Sequence[str]], kinds: Mapping[str, InterfaceType]
) -> NodeNetworkInfo:
    """One row per address of the interfaces in `kinds`, those with known hardware first."""
    rows = [
        NetworkInterfaceInfo(name=name, ip_address=strip_zone(address), interface_type=kinds[name])
        for label, found in addresses.items()
        # An old-style alias, `eth0:1`, is its interface.
        if (name := label.partition(":")[0]) in kinds
        for address in found
    ]
    return NodeNetworkInfo(interfaces=sorted(rows, key=lambda row: row.interface_type == "unknown"))


def primary_address(info: NodeNetworkInfo) -> str | None:
    """The first IPv4 address that others could use: no loopback, no link-local."""
    for interface in info.interfaces:
        try:
            address = ipaddress.IPv4Address(interface.ip_address)
        except ValueError:
            continue
        if not (address.is_loopback or address.is_link_local or address.is_unspecified):
            return interface.ip_address
    return None


def strip_zone(address: str) -> str:
    """`fe80::1%en0` → `fe80::1`: the zone means something on this machine only."""
    return address.partition("%")[0]


def linux_interface_type(interface: Path) -> InterfaceType:
    """Judge one directory of /sys/class/net."""
    if (interface / "wireless").is_dir() or (interface / "phy80211").exists():
        return "wifi"
    if read_int(interface / "type") != ARPHRD_ETHER:
        return "unknown"  # loopback, tunnels, InfiniBand
    if (interface / "bonding").is_dir():
        return "maybe_ethernet"
    device = interface / "device"
    if not device.exists():
        return "unknown"  # bridges, veth pairs, docker, dummies: no hardware behind them
    bus = link_name(device / "subsystem")
    if bus == "thunderbolt":
        return "thunderbolt"
    # A USB device may be a network card or a tethered telephone.
    return "maybe_ethernet" if bus == "usb" else "ethernet"


def parse_hardware_ports(text: str) -> dict[str, str]:
    """Device → port name, from macOS `networksetup -listallhardwareports`."""
    pairs = re.findall(r"^Hardware Port: (.+)\nDevice: (\S+)$", text, re.MULTILINE)
    return {device: port.strip() for port, device in pairs}


def macos_interface_type(name: str, ports: Mapping[str, str]) -> InterfaceType:
    """Judge one macOS interface by the name of its hardware port."""
    port = ports.get(name)
    if port is None:
        return "maybe_ethernet" if re.fullmatch(r"en\d+", name) else "unknown"
    if port in {"Wi-Fi", "AirPort"}:
        return "wifi"
    if port.startswith("Ethernet Adapter"):
        return "maybe_ethernet"  # macOS names an unconnected Thunderbolt port this way, too
    if "Ethernet" in port or re.search(r"\bLAN\b", port):
        return "ethernet"
    return "thunderbolt" if port.startswith("Thunderbolt") else "unknown"


def _linux_kinds(names: list[str], root: Path) -> dict[str, InterfaceType]:
    return {name: linux_interface_type(root / "sys/class/net" / name) for name in names}


def _macos_kinds(names: list[str]) -> dict[str, InterfaceType]:
    ports = parse_hardware_ports(
        run_tool(["networksetup", "-listallhardwareports"], NETWORKSETUP_TIMEOUT_S)
    )
    return {name: macos_interface_type(name, ports) for name in names}
