"""A cluster of Macs made of recorded tools: real programs on PATH that print what a Mac prints.

Everything comes from one list of cables, so both ends of each agree, as they do in reality.
`install` writes one executable per tool; whatever was not recorded ends with exit code 64.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import NAMESPACE_OID, uuid5

from tests.macs.kinds import THUNDERBOLT_5, Kind

GIB = 1024**3
PAGE = 16384
End = tuple[str, str]
"""Name of a Mac and number of its receptacle."""


@dataclass(frozen=True)
class Run:
    """One call of a tool and what became of it."""

    argv: tuple[str, ...]
    stdout: str = ""
    code: int = 0
    stderr: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Mac:
    """`rdma` None: macOS before 26.2, without `rdma_ctl`. `free_pages` are what models may take."""

    name: str
    kind: Kind
    rdma: Literal["enabled", "disabled"] | None = "enabled"
    bridge: bool = False
    version: str = "26.2"
    memory_gib: int = 64
    used_gib: int = 8
    wired_limit_mb: int = 0
    pressure: int = 1
    without_ipv4: frozenset[str] = frozenset()
    """Receptacles whose interface has no IPv4 address."""
    disk_at: str | None = None
    """Receptacle of a Thunderbolt disk."""
    boot: int = 1
    mactop: bool = False
    instead: Mapping[tuple[str, ...], Run] = field(default_factory=dict)
    """Runs that replace the usual ones."""


@dataclass(frozen=True)
class Cable:
    one: End
    other: End
    speed: str | None = None

    def far(self, end: End) -> End | None:
        return {self.one: self.other, self.other: self.one}.get(end)


def record(mac: Mac, macs: Sequence[Mac], cables: Sequence[Cable]) -> list[Run]:
    """Every tool of this Mac, among these Macs."""
    others = {one.name: one for one in macs}
    runs = [
        Run(("system_profiler", "SPThunderboltDataType", "-json"), _buses(mac, others, cables)),
        Run(("system_profiler", "-json", "SPHardwareDataType"), _hardware(mac)),
        Run(("networksetup", "-listallhardwareports"), _ports(mac)),
        Run(("networksetup", "-listnetworkserviceorder"), _services(mac)),
        Run(
            ("networksetup", "-getnetworkserviceenabled", "TB Bridge"),
            "Enabled\n" if mac.bridge else "Disabled\n",
        ),
        Run(("ifconfig", "bridge0"), _bridge(mac)),
        Run(("sw_vers",), f"ProductName:\t\tmacOS\nProductVersion:\t\t{mac.version}\n"
                          "BuildVersion:\t\t25C56\n"),
        Run(("vm_stat",), _vm_stat(mac)),
        Run(("sysctl", "-n", "hw.memsize"), f"{mac.memory_gib * GIB}\n"),
        Run(("sysctl", "-n", "iogpu.wired_limit_mb"), f"{mac.wired_limit_mb}\n"),
        Run(("sysctl", "-n", "kern.memorystatus_vm_pressure_level"), f"{mac.pressure}\n"),
        Run(("ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"), _ioreg(mac)),
        *_rdma_tools(mac, others, cables),
    ]  # fmt: skip
    if mac.mactop:
        runs.append(Run(_MACTOP, _mactop_line()))
    return [mac.instead.get(run.argv, run) for run in runs]


def install(folder: Path, runs: Sequence[Run]) -> Path:
    """Write the tools into a folder of their own; the folder is meant for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    by_tool: dict[str, list[Run]] = {}
    for run in runs:
        by_tool.setdefault(run.argv[0], []).append(run)
    for tool, calls in by_tool.items():
        lines = ["#!/bin/sh", 'case "$*" in']
        for number, run in enumerate(calls):
            out = folder / f".{tool}.{number}.out"
            out.write_text(run.stdout, encoding="utf-8")
            pause = f"sleep {run.seconds}; " if run.seconds else ""
            told = f"echo {shlex.quote(run.stderr)} >&2; " if run.stderr else ""
            show = f"cat {shlex.quote(str(out))}; {told}exit {run.code}"
            lines.append(f"{shlex.quote(' '.join(run.argv[1:]))}) {pause}{show};;")
        lines += ['*) echo "not recorded: $*" >&2; exit 64;;', "esac", ""]
        script = folder / tool
        # Replaced in one step: a daemon may be calling the old one.
        fresh = folder / f".{tool}.new"
        fresh.write_text("\n".join(lines), encoding="utf-8")
        fresh.chmod(0o755)
        fresh.rename(script)
    return folder


def uuid_of(mac: Mac, receptacle: str) -> str:
    """New after each boot."""
    return str(uuid5(NAMESPACE_OID, f"{mac.name}/{receptacle}/{mac.boot}")).upper()


def _peer(mac: Mac, receptacle: str, others: Mapping[str, Mac], cables: Sequence[Cable]) -> Any:
    """The Mac, receptacle and speed at the other end; None for a free port."""
    for cable in cables:
        far = cable.far((mac.name, receptacle))
        if far is not None:
            peer = others[far[0]]
            both = {mac.kind.idle_speed, peer.kind.idle_speed} == {THUNDERBOLT_5}
            return peer, far[1], cable.speed or ("80 Gb/s" if both else "40 Gb/s")
    return None


def _buses(mac: Mac, others: Mapping[str, Mac], cables: Sequence[Cable]) -> str:
    numbers = sorted(mac.kind.ports, reverse=True)
    buses = [
        _bus(mac, index, number, _peer(mac, number, others, cables))
        for index, number in enumerate(numbers)
    ]
    return json.dumps({"SPThunderboltDataType": buses}, indent=2)


def _bus(mac: Mac, index: int, number: str, peer: Any) -> dict[str, Any]:
    tag = {
        "receptacle_id_key": number,
        "current_speed_key": mac.kind.idle_speed if peer is None else peer[2],
        "link_status_key": "0x100" if peer is None else "0x2",
        "receptacle_status_key": "receptacle_no_devices_connected"
        if peer is None and number != mac.disk_at
        else "receptacle_connected",
    }
    bus: dict[str, Any] = {
        "_name": f"thunderboltusb4_bus_{len(mac.kind.ports) - 1 - index}",
        "device_name_key": mac.kind.name,
        "domain_uuid_key": uuid_of(mac, number),
        "receptacle_1_tag": tag,
        "route_string_key": "0",
        "switch_uid_key": f"0x05AC0000000000{index:02X}",
        "vendor_name_key": "Apple Inc.",
    }
    if number == mac.disk_at:
        bus["_items"] = [{"_name": "Fast Disk", "mode_key": "usb_four", "vendor_id_key": "0x5AC"}]
    elif peer is not None:
        bus["_items"] = [_item(*peer[:2])]
    return bus


def _item(peer: Mac, receptacle: str) -> dict[str, Any]:
    services = [{"_name": "service_ip", "protocol_id_key": 1}]
    if peer.rdma == "enabled":
        services.append({"_name": "unknown_xd_service", "protocol_id_key": 64087})
    return {
        "_name": peer.name,
        "device_name_key": peer.kind.identifier,
        "domain_uuid_key": uuid_of(peer, receptacle),
        "services_title": services,
        "vendor_id_key": "0x0A27",
    }


def _rdma_tools(mac: Mac, others: Mapping[str, Mac], cables: Sequence[Cable]) -> list[Run]:
    if mac.rdma is None:
        return []
    status = Run(("rdma_ctl", "status"), f"{mac.rdma}\n")
    header = "    device          \t   node GUID\n    ------          \t----------------\n"
    if mac.rdma == "disabled" or mac.kind.idle_speed != THUNDERBOLT_5:
        none = Run(("ibv_devinfo", "-v"), "", 255, "No IB devices found")
        return [status, Run(("ibv_devices",), header), none]
    listed = "".join(
        f"    rdma_{device}        \t8196a9d9edbaac0{n}\n"
        for n, device in enumerate(mac.kind.ports.values())
    )
    info = "\n".join(_device(mac, number, others, cables) for number in mac.kind.ports)
    return [status, Run(("ibv_devices",), header + listed), Run(("ibv_devinfo", "-v"), info)]


def _device(mac: Mac, number: str, others: Mapping[str, Mac], cables: Sequence[Cable]) -> str:
    peer = _peer(mac, number, others, cables)
    active = peer is not None and peer[0].rdma == "enabled"
    state = "PORT_ACTIVE (4)" if active else "PORT_DOWN (1)"
    device = mac.kind.ports[number]
    lines = [
        f"hca_id:\trdma_{device}",
        "\ttransport:\t\t\tThunderbolt (100)",
        "\tfw_ver:\t\t\t\t1.0",
        f"\tnode_guid:\t\t\t8196:a9d9:edba:ac0{number}",
        "\tphys_port_cnt:\t\t\t1",
        "\t\tport:\t1",
        f"\t\t\tstate:\t\t\t{state}",
        "\t\t\tmax_mtu:\t\t4096 (5)",
        "\t\t\tlink_layer:\t\tThunderbolt",
        f"\t\t\tGID[  0]:\t\tfe80::1c:{number}ff:fe00:1",
    ]
    if active and number not in mac.without_ipv4:
        # Under the usual 169.254: what Macs give to a port that nobody configured.
        lines.append(f"\t\t\tGID[  1]:\t\t::ffff:169.254.{number}.{ord(mac.name[-1])}")
    return "\n".join(lines) + "\n"


def _hardware(mac: Mac) -> str:
    return json.dumps(
        {
            "SPHardwareDataType": [
                {
                    "_name": "hardware_overview",
                    "chip_type": mac.kind.chip,
                    "machine_model": mac.kind.identifier,
                    "machine_name": mac.kind.name,
                    "number_processors": mac.kind.cores,
                    "physical_memory": f"{mac.memory_gib} GB",
                }
            ]
        },
        indent=2,
    )


def _ports(mac: Mac) -> str:
    blocks = [
        f"\nHardware Port: {port}\nDevice: {device}\nEthernet Address: 02:00:00:00:00:{n:02x}\n"
        for n, (port, device) in enumerate(mac.kind.hardware_ports.items())
    ]
    adapter = "\nHardware Port: Ethernet Adapter (en14)\nDevice: en14\nEthernet Address: N/A\n"
    return "".join([adapter, *blocks]) + "\nVLAN Configurations\n===================\n"


def _services(mac: Mac) -> str:
    mark = "3" if mac.bridge else "*"
    return (
        "An asterisk (*) denotes that a network service is disabled.\n"
        "(1) Wi-Fi\n(Hardware Port: Wi-Fi, Device: en1)\n\n"
        f"({mark}) TB Bridge\n(Hardware Port: Thunderbolt Bridge, Device: bridge0)\n\n"
    )


def _bridge(mac: Mac) -> str:
    members = "".join(
        f"\tmember: {device} flags=3<LEARNING,DISCOVER>\n\t        ifmaxaddr 0 port 9 priority 0\n"
        for device in mac.kind.ports.values()
    )
    return (
        "bridge0: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> mtu 1500\n"
        "\tConfiguration:\n\t\tid 0:0:0:0:0:0 priority 0 hellotime 0 fwddelay 0\n"
        f"{members}\tmedia: <unknown type>\n\tstatus: inactive\n"
    )


def _vm_stat(mac: Mac) -> str:
    anonymous = mac.used_gib * GIB // PAGE
    return (
        f"Mach Virtual Memory Statistics: (page size of {PAGE} bytes)\n"
        f"Pages free:                               {mac.memory_gib * 100}.\n"
        "Pages wired down:                        65536.\n"
        f"Anonymous pages:                         {anonymous}.\n"
        "Pages occupied by compressor:            0.\n"
    )


def _ioreg(mac: Mac) -> str:
    statistics = (
        '"In use system memory (driver)"=0,"Tiler Utilization %"=10,"recoveryCount"=0,'
        '"Device Utilization %"=37,"In use system memory"=2363801600'
    )
    return (
        f"+-o {mac.kind.gpu}  <class {mac.kind.gpu}, id 0x1000005d5, registered, matched, active>\n"
        "    {\n"
        f'      "PerformanceStatistics" = {{{statistics}}}\n'
        f'      "model" = "{mac.kind.chip}"\n'
        "    }\n\n"
    )


_MACTOP = ("mactop", "--headless", "--format", "json", "--interval", "1000", "--count", "1")


def _mactop_line() -> str:
    sample = {
        "soc_metrics": {"system_power": 41.5, "gpu_power": 9.25, "gpu_temp": 52.5},
        "memory": {"total": 68719476736, "available": 51539607552},
        "gpu_usage": 37.0,
        "ecpu_usage": [1020, 12.5],
        "pcpu_usage": [4050, 31.0],
    }
    return json.dumps(sample) + "\n"
