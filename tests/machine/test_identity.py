"""Identity of this machine, of pretended Linux machines and of Macs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skulkd.machine.identity import (
    Hardware,
    System,
    find_commit,
    parse_sw_vers,
    parse_system_profiler,
    read_identity,
    read_linux_hardware,
    read_linux_system,
)
from skulkd.machine.tools import ToolError

from .conftest import Tree

X86_CPU = """\
processor\t: 0
vendor_id\t: GenuineIntel
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480+
flags\t\t: fpu vme

processor\t: 1
model name\t: Intel(R) Xeon(R) Platinum 8480+
"""
PI_CPU = """\
processor\t: 0
BogoMIPS\t: 108.00
CPU part\t: 0xd0b

Revision\t: c04170
Model\t\t: Raspberry Pi 5 Model B Rev 1.0
"""
COMMIT = "32275ad0c1f2e3d4b5a697887766554433221100"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {"proc/cpuinfo": X86_CPU, "sys/class/dmi/id/product_name": "PowerEdge R760\n"},
            Hardware("PowerEdge R760", "Intel(R) Xeon(R) Platinum 8480+"),
            id="server",
        ),
        pytest.param(
            {"proc/cpuinfo": X86_CPU, "sys/class/dmi/id/product_name": "To Be Filled By O.E.M.\n"},
            Hardware(None, "Intel(R) Xeon(R) Platinum 8480+"),
            id="placeholder",
        ),
        pytest.param(
            {
                "proc/cpuinfo": PI_CPU,
                "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
                "proc/device-tree/compatible": "raspberrypi,5-model-b\0brcm,bcm2712\0",
            },
            Hardware("Raspberry Pi 5 Model B Rev 1.0", "brcm bcm2712"),
            id="device tree",
        ),
        pytest.param(
            {"proc/cpuinfo": PI_CPU},
            Hardware("Raspberry Pi 5 Model B Rev 1.0", None),
            id="cpuinfo model only",
        ),
        pytest.param({"proc/version": "x"}, Hardware(None, None), id="nothing readable"),
    ],
)
def test_linux_hardware(
    write_tree: Callable[[Tree], Path], files: Tree, expected: Hardware
) -> None:
    assert read_linux_hardware(write_tree(files)) == expected


def test_linux_system_is_distribution_and_kernel(write_tree: Callable[[Tree], Path]) -> None:
    text = 'NAME="Fedora Linux"\nVERSION_ID=42\nPRETTY_NAME="Fedora Linux 42 (Server)"\n'
    root = write_tree({"etc/os-release": text})
    assert read_linux_system(root) == System("Fedora Linux 42 (Server)", os.uname().release)


def test_macos_texts() -> None:
    profile = """{"SPHardwareDataType": [{"_name": "hardware_overview", "chip_type": "Apple M4",
        "machine_model": "Mac16,10", "machine_name": "Mac mini", "physical_memory": "16 GB"}]}"""
    assert parse_system_profiler(profile) == Hardware("Mac mini", "Apple M4")
    versions = "ProductName:\t\tmacOS\nProductVersion:\t\t15.5\nBuildVersion:\t\t24F74\n"
    assert parse_sw_vers(versions) == System("15.5", "24F74")


@pytest.mark.parametrize("text", ["", "[]", '{"SPHardwareDataType": []}', "not json"])
def test_unexpected_answer_of_system_profiler_is_an_error(text: str) -> None:
    with pytest.raises(ToolError, match="system_profiler"):
        parse_system_profiler(text)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": COMMIT}, "32275ad"),
        (
            {
                ".git/HEAD": "ref: refs/heads/main\n",
                ".git/packed-refs": f"# pack-refs with: peeled\n{COMMIT} refs/heads/main\n",
            },
            "32275ad",
        ),
        ({".git/HEAD": f"{COMMIT}\n"}, "32275ad"),
        ({".git/HEAD": "ref: refs/heads/unborn\n"}, "Unknown"),
        ({"README": "no checkout"}, "Unknown"),
    ],
)
def test_commit_of_the_checkout(
    write_tree: Callable[[Tree], Path], files: Tree, expected: str
) -> None:
    assert find_commit({}, write_tree(files)) == expected


def test_commit_of_the_environment_wins(write_tree: Callable[[Tree], Path]) -> None:
    root = write_tree({".git/HEAD": COMMIT})
    assert find_commit({"SKULK_COMMIT": "abc1234"}, root) == "abc1234"


def test_real_identity_has_no_empty_string() -> None:
    identity = read_identity("kite1", "9.9.9")
    assert (identity.friendly_name, identity.skulk_version) == ("kite1", "9.9.9")
    assert all(identity.model_dump().values())
    if sys.platform == "linux":
        assert identity.os_build_version == platform.release()
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
        models = [line.split(":", 1)[1].strip() for line in names if line.startswith("model name")]
        assert identity.chip_id in models or not models
