"""Readings of one machine. A reading that was not taken is absent or null, never made up."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from skulkd.wire.base import CamelModel, Memory

AcceleratorVendor = Literal["apple", "amd", "nvidia", "intel", "cpu", "unknown"]
InterfaceType = Literal["wifi", "ethernet", "maybe_ethernet", "thunderbolt", "unknown"]


class MemoryUsage(CamelModel):
    ram_total: Memory
    ram_available: Memory = Field(description="What a model may take; on macOS, what can be wired.")
    swap_total: Memory
    swap_available: Memory


class DiskUsage(CamelModel):
    """The volume that holds the models."""

    total: Memory
    available: Memory


class AcceleratorMetrics(CamelModel):
    vendor: AcceleratorVendor = "unknown"
    name: str = "Unknown"
    utilization_ratio: float | None = Field(default=None, description="0 to 1.")
    vram_total_bytes: int | None = None
    vram_used_bytes: int | None = None
    gtt_total_bytes: int | None = Field(
        default=None, description="Host memory that a unified-memory GPU can map besides its VRAM."
    )
    power_watts: float | None = None
    temperature_celsius: float | None = None
    clock_mhz: int | None = None


def _is_unknown(reading: float | None) -> bool:
    return reading is None


def _drop_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


# A number whose key is left out when it was not measured. Older nodes send null instead.
Measured = Annotated[
    float | None,
    WithJsonSchema({"type": "number"}),
    Field(exclude_if=_is_unknown, json_schema_extra=_drop_default),
]


class SystemPerformanceProfile(CamelModel):
    """A key that is absent was not measured. The reference reads it as 0."""

    gpu_usage: Measured = Field(default=None, description="Percent, 0 to 100.")
    temp: Measured = Field(default=None, description="Degrees Celsius.")
    sys_power: Measured = Field(default=None, description="Watts drawn by the machine.")
    pcpu_usage: Measured = Field(default=None, description="Performance cores, percent.")
    ecpu_usage: Measured = Field(default=None, description="Efficiency cores, percent.")
    accelerator: AcceleratorMetrics | None = None


class NodeIdentity(CamelModel):
    model_id: str = Field(default="Unknown", description="Hardware model, not a language model.")
    chip_id: str = "Unknown"
    friendly_name: str = "Unknown"
    os_version: str = "Unknown"
    os_build_version: str = "Unknown"
    skulk_version: str = "Unknown"
    skulk_commit: str = "Unknown"


class NetworkInterfaceInfo(CamelModel):
    name: str
    ip_address: str
    interface_type: InterfaceType = "unknown"


class NodeNetworkInfo(CamelModel):
    interfaces: list[NetworkInterfaceInfo] = Field(default_factory=list)


class ThunderboltInterface(CamelModel):
    rdma_interface: str
    domain_uuid: str
    link_speed: str = ""


class NodeThunderboltInfo(CamelModel):
    interfaces: list[ThunderboltInterface] = Field(default_factory=list)


class ThunderboltBridgeStatus(CamelModel):
    enabled: bool
    exists: bool
    service_name: str | None = None


MemoryPressure = Literal["normal", "warning", "critical"]


class MetalLimits(CamelModel):
    """What macOS lets the GPU have, and how short of memory it is. Travels between nodes only."""

    wired_limit: Memory | None = Field(default=None, description="The most that may be wired.")
    is_default: bool = Field(default=True, description="False: set by the operator.")
    pressure: MemoryPressure | None = None


class RdmaCtlStatus(CamelModel):
    enabled: bool
    interfaces_present: bool = False
