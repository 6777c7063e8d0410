"""Which machine this is: model, chip, operating system, our version and commit.

Knows nothing of the cluster; a string nobody could read is "Unknown", as on the wire.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from skulkd.machine.sysfs import read_text
from skulkd.machine.tools import ToolError, run_tool
from skulkd.wire.machine import NodeIdentity

UNKNOWN = "Unknown"
TOOL_TIMEOUT_S = 2.0

# What firmware makers leave in the product field when they do not fill it.
PLACEHOLDER_MODELS = {
    "", "none", "default string", "system product name", "to be filled by o.e.m.",
    "not specified", "not applicable", "o.e.m", "oem",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hardware:
    """Model and chip of a machine; None where not known."""

    model: str | None = None
    chip: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    """Version and build of an operating system; None where not known."""

    version: str | None = None
    build: str | None = None


def read_identity(name: str, version: str, platform: str = sys.platform) -> NodeIdentity:
    """Everything a NodeIdentity holds, for a node called `name` that runs our `version`."""
    hardware = this_hardware(platform)
    system = _read_macos_system() if platform == "darwin" else read_linux_system()
    return NodeIdentity(
        model_id=hardware.model or UNKNOWN,
        chip_id=hardware.chip or UNKNOWN,
        friendly_name=name,
        os_version=system.version or UNKNOWN,
        os_build_version=system.build or UNKNOWN,
        skulk_version=version,
        skulk_commit=find_commit(os.environ, Path(__file__).parents[2]),
    )


@cache
def this_hardware(platform: str = sys.platform) -> Hardware:
    """Model and chip of this machine, asked once: they do not change while we run."""
    return read_macos_hardware() if platform == "darwin" else read_linux_hardware()


def read_linux_hardware(root: Path = Path("/")) -> Hardware:
    """Model and chip from firmware tables, /proc/cpuinfo and the device tree."""
    cpu = parse_cpuinfo(read_text(root / "proc/cpuinfo") or "")
    product = read_text(root / "sys/class/dmi/id/product_name") or ""
    if product.lower() in PLACEHOLDER_MODELS:
        product = ""
    tree = root / "proc/device-tree"
    return Hardware(
        model=product or read_text(tree / "model") or cpu.get("Model"),
        chip=cpu.get("model name")
        or soc_name(read_text(tree / "compatible") or "")
        or cpu.get("Hardware"),
    )


def read_linux_system(root: Path = Path("/")) -> System:
    """The distribution's own name with version; the kernel release as build."""
    release = parse_os_release(read_text(root / "etc/os-release") or "")
    return System(
        version=release.get("PRETTY_NAME") or release.get("NAME"), build=os.uname().release
    )


def read_macos_hardware() -> Hardware:
    """`system_profiler` names model and chip; `sysctl` is the fallback."""
    try:
        text = run_tool(["system_profiler", "-json", "SPHardwareDataType"], TOOL_TIMEOUT_S * 2)
        found = parse_system_profiler(text)
    except ToolError:
        found = Hardware()
    return Hardware(
        model=found.model or _sysctl("hw.model"),
        chip=found.chip or _sysctl("machdep.cpu.brand_string"),
    )


def parse_cpuinfo(text: str) -> dict[str, str]:
    """First value of every key in /proc/cpuinfo that has one."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and value.strip():
            values.setdefault(key.strip(), value.strip())
    return values


def soc_name(compatible: str) -> str | None:
    """`raspberrypi,5-model-b\\0brcm,bcm2712` → `brcm bcm2712`: the last entry is the chip."""
    last = compatible.strip("\0").rpartition("\0")[2]
    return last.replace(",", " ") or None


def parse_os_release(text: str) -> dict[str, str]:
    """The KEY=value lines of /etc/os-release without their quotes."""
    found = re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE)
    return {key: value.strip().strip("\"'") for key, value in found}


def parse_system_profiler(text: str) -> Hardware:
    """Model and chip from `system_profiler -json SPHardwareDataType`."""
    try:
        entry = json.loads(text)["SPHardwareDataType"][0]
    except (ValueError, LookupError, TypeError) as error:
        raise ToolError("system_profiler: its answer is not the expected JSON") from error
    return Hardware(
        model=entry.get("machine_name"), chip=entry.get("chip_type") or entry.get("cpu_type")
    )


def parse_sw_vers(text: str) -> System:
    """Version and build from macOS `sw_vers`."""
    values = dict(re.findall(r"^(\w+):\s*(\S.*?)\s*$", text, re.MULTILINE))
    return System(version=values.get("ProductVersion"), build=values.get("BuildVersion"))


def find_commit(environ: Mapping[str, str], checkout: Path) -> str:
    """SKULK_COMMIT (set when an image is built), else the checkout this code runs from."""
    told = environ.get("SKULK_COMMIT", "").strip()
    return told or _checkout_commit(checkout / ".git") or UNKNOWN


def _checkout_commit(git: Path) -> str | None:
    """Seven characters of the commit that a git directory has checked out."""
    head = read_text(git / "HEAD")
    if head is None:
        return None
    reference = head.removeprefix("ref: ")
    commit = head
    if reference != head:
        commit = read_text(git / reference) or _packed_commit(git, reference) or ""
    return commit[:7] if re.fullmatch(r"[0-9a-f]{40,64}", commit) else None


def _packed_commit(git: Path, reference: str) -> str | None:
    for line in (read_text(git / "packed-refs") or "").splitlines():
        commit, _, name = line.partition(" ")
        if name == reference:
            return commit
    return None


def _read_macos_system() -> System:
    return parse_sw_vers(run_tool(["sw_vers"], TOOL_TIMEOUT_S))


def _sysctl(name: str) -> str | None:
    try:
        return run_tool(["sysctl", "-n", name], TOOL_TIMEOUT_S).strip() or None
    except ToolError:
        return None
