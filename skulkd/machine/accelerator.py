"""The accelerator this machine would compute on: Apple, NVIDIA, AMD, else the CPU.

Chooses between the vendors; how each is read is in the module of that vendor.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from skulkd.machine.accelerator_amd import read_amd
from skulkd.machine.accelerator_apple import read_apple
from skulkd.machine.accelerator_nvidia import read_nvidia
from skulkd.machine.identity import UNKNOWN, this_hardware
from skulkd.machine.tools import ToolError
from skulkd.wire.machine import AcceleratorMetrics


def read_accelerator(root: Path = Path("/"), platform: str = sys.platform) -> AcceleratorMetrics:
    """Read the best accelerator of this machine; the CPU when there is no other."""
    chosen = choose(read_apple()) if platform == "darwin" else _read_card(root)
    return chosen or AcceleratorMetrics(vendor="cpu", name=this_hardware(platform).chip or UNKNOWN)


def choose(found: Sequence[AcceleratorMetrics]) -> AcceleratorMetrics | None:
    """The one with most memory (the first of equals); its name tells that there are more.

    The wire has room for one. A sum would promise memory that no single device has.
    """
    if not found:
        return None
    best = max(found, key=reachable_bytes)
    if len(found) == 1:
        return best
    return best.model_copy(update={"name": f"{best.name} (1 of {len(found)})"})


def reachable_bytes(metrics: AcceleratorMetrics) -> int:
    """Memory the device can address: its own plus, on unified machines, the host's share."""
    return (metrics.vram_total_bytes or 0) + (metrics.gtt_total_bytes or 0)


def _read_card(root: Path) -> AcceleratorMetrics | None:
    """A broken NVIDIA driver is an error, not "no GPU"; another card still counts."""
    broken: ToolError | None = None
    try:
        found = read_nvidia()
    except ToolError as error:
        found, broken = [], error
    chosen = choose(found) or choose(read_amd(root))
    if chosen is None and broken is not None:
        raise broken
    return chosen
