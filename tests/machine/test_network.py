"""Interfaces of this machine, of pretended Linux machines and of Macs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from skulkd.machine.network import (
    linux_interface_type,
    list_interfaces,
    macos_interface_type,
    parse_hardware_ports,
    primary_address,
    read_network,
    strip_zone,
)
from skulkd.wire.machine import InterfaceType, NetworkInterfaceInfo, NodeNetworkInfo

from .conftest import Tree

HARDWARE_PORTS = """\

Hardware Port: Ethernet
Device: en0
Ethernet Address: 1c:1d:d3:00:00:01

Hardware Port: Ethernet Adapter (en4)
Device: en4
Ethernet Address: 1c:1d:d3:00:00:02

Hardware Port: Thunderbolt Bridge
Device: bridge0
Ethernet Address: 36:00:00:00:00:03

Hardware Port: Wi-Fi
Device: en1
Ethernet Address: 1c:1d:d3:00:00:04

Hardware Port: Thunderbolt 1
Device: en2
Ethernet Address: 36:00:00:00:00:05

Hardware Port: Thunderbolt Ethernet Slot 1
Device: en7
Ethernet Address: 36:00:00:00:00:06

Hardware Port: USB 10/100/1000 LAN
Device: en8
Ethernet Address: 36:00:00:00:00:07

Hardware Port: iPhone USB
Device: en9
Ethernet Address: 36:00:00:00:00:08

VLAN Configurations
===================
"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"type": "1", "device/subsystem": "-> /sys/bus/pci"}, "ethernet", id="pci"),
        pytest.param({"type": "1", "device/subsystem": "-> /sys/bus/virtio"}, "ethernet", id="vm"),
        pytest.param(
            {"type": "1", "device/subsystem": "-> /sys/bus/usb"}, "maybe_ethernet", id="usb"
        ),
        pytest.param(
            {"type": "1", "device/subsystem": "-> /sys/bus/thunderbolt"},
            "thunderbolt",
            id="thunderbolt",
        ),
        pytest.param({"type": "1", "device/x": "", "wireless/status": "0"}, "wifi", id="wireless"),
        pytest.param({"type": "1", "device/x": "", "phy80211/name": "phy0"}, "wifi", id="phy"),
        pytest.param({"type": "1", "bonding/mode": "802.3ad 4"}, "maybe_ethernet", id="bond"),
        pytest.param({"type": "1", "bridge/bridge_id": "8000.02"}, "unknown", id="docker0"),
        pytest.param({"type": "1"}, "unknown", id="veth"),
        pytest.param({"type": "65534", "tun_flags": "0x1001"}, "unknown", id="tailscale0"),
        pytest.param({"type": "772"}, "unknown", id="lo"),
        pytest.param({}, "unknown", id="gone"),
    ],
)
def test_linux_interface_type(
    write_tree: Callable[[Tree], Path], files: Tree, expected: InterfaceType
) -> None:
    root = write_tree({f"net0/{name}": text for name, text in files.items()})
    assert linux_interface_type(root / "net0") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("en0", "ethernet"), ("en1", "wifi"), ("en2", "thunderbolt"), ("bridge0", "thunderbolt"),
        ("en4", "maybe_ethernet"), ("en7", "ethernet"), ("en8", "ethernet"), ("en9", "unknown"),
        ("en12", "maybe_ethernet"), ("utun3", "unknown"), ("lo0", "unknown"), ("awdl0", "unknown"),
    ],
)  # fmt: skip
def test_macos_interface_type(name: str, expected: InterfaceType) -> None:
    assert macos_interface_type(name, parse_hardware_ports(HARDWARE_PORTS)) == expected


def test_real_reading_lists_every_address_of_interfaces_that_are_up() -> None:
    rows = read_network().interfaces
    stats = psutil.net_if_stats()
    expected = {
        (name.split(":")[0], strip_zone(entry.address))
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if stats[name.split(":")[0]].isup and entry.family.name in {"AF_INET", "AF_INET6"}
    }
    assert {(row.name, row.ip_address) for row in rows} == expected
    assert "127.0.0.1" in {row.ip_address for row in rows}
    assert not [row for row in rows if "%" in row.ip_address]


def test_rows_are_those_of_interfaces_that_are_up_with_hardware_first() -> None:
    addresses = {
        "lo": ["127.0.0.1"],
        "eth0": ["10.0.0.7", "fe80::1%eth0"],
        "eth0:1": ["10.0.0.8"],
        "down0": ["10.9.9.9"],
    }
    rows = list_interfaces(addresses, {"lo": "unknown", "eth0": "ethernet"}).interfaces
    assert [(row.name, row.ip_address, row.interface_type) for row in rows] == [
        ("eth0", "10.0.0.7", "ethernet"),
        ("eth0", "fe80::1", "ethernet"),
        ("eth0", "10.0.0.8", "ethernet"),
        ("lo", "127.0.0.1", "unknown"),
    ]


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["127.0.0.1", "::1", "169.254.3.4", "fd00::2", "10.0.0.7", "10.0.0.8"], "10.0.0.7"),
        (["127.0.0.1", "fd00::2", "0.0.0.0", "no address"], None),
        ([], None),
    ],
)
def test_primary_address_is_the_first_that_others_can_use(
    addresses: list[str], expected: str | None
) -> None:
    rows = [NetworkInterfaceInfo(name="x", ip_address=address) for address in addresses]
    assert primary_address(NodeNetworkInfo(interfaces=rows)) == expected
