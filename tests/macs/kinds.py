"""Macs of five generations: what differs between them, as their tools have shown it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

THUNDERBOLT_4 = "Up to 40 Gb/s"
THUNDERBOLT_5 = "Up to 120 Gb/s"


@dataclass(frozen=True)
class Kind:
    """One model. `ports` maps the number of a receptacle to its interface, by no rule at all."""

    name: str
    identifier: str
    chip: str
    gpu: str
    ports: Mapping[str, str]
    idle_speed: str
    cores: str = "proc 10:4:6"
    other_ports: Mapping[str, str] | None = None

    @property
    def hardware_ports(self) -> dict[str, str]:
        """Name of the hardware port → device, as `networksetup` lists them."""
        other = {"Ethernet": "en0", "Wi-Fi": "en1"} if self.other_ports is None else {}
        return {
            **(self.other_ports or other),
            **{f"Thunderbolt {number}": device for number, device in self.ports.items()},
        }


M1_AIR = Kind(
    "MacBook Air", "MacBookAir10,1", "Apple M1", "AGXAcceleratorG13G_B0",
    {"1": "en1", "2": "en2"}, THUNDERBOLT_4, "proc 8:4:4", {"Wi-Fi": "en0"},
)  # fmt: skip
M2_MAX = Kind(
    "Mac Studio", "Mac14,13", "Apple M2 Max", "AGXAcceleratorG14C",
    {"1": "en2", "2": "en3", "3": "en4", "4": "en5"}, THUNDERBOLT_4, "proc 12:8:4",
)  # fmt: skip
M3_ULTRA = Kind(
    "Mac Studio", "Mac15,14", "Apple M3 Ultra", "AGXAcceleratorG15D",
    {"1": "en2", "2": "en3", "3": "en4", "4": "en5", "5": "en6", "6": "en7"},
    THUNDERBOLT_5, "proc 32:24:8",
)  # fmt: skip
M4_MINI = Kind(
    "Mac mini", "Mac16,10", "Apple M4", "AGXAcceleratorG16G",
    {"1": "en2", "2": "en3", "4": "en4"}, THUNDERBOLT_4, "proc 10:4:6",
)  # fmt: skip
M4_PRO_MINI = Kind(
    "Mac mini", "Mac16,11", "Apple M4 Pro", "AGXAcceleratorG16S",
    {"1": "en2", "2": "en3", "3": "en4"}, THUNDERBOLT_5, "proc 14:10:4",
)  # fmt: skip
M5_MAX_BOOK = Kind(
    "MacBook Pro", "Mac17,7", "Apple M5 Max", "AGXAcceleratorG17C",
    {"1": "en1", "2": "en6", "3": "en2"}, THUNDERBOLT_5, "proc 18:6:0:12", {"Wi-Fi": "en0"},
)  # fmt: skip
GENERATIONS = (M1_AIR, M2_MAX, M3_ULTRA, M4_MINI, M4_PRO_MINI, M5_MAX_BOOK)
