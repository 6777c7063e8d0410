"""What a node reports to the gateway: counters, capacity, hardware pressure, heartbeats.

The arithmetic is the reference's to the last rounding, because a gateway balances on it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from skulkd.swarm.catalog import METADATA_VERSION, catalog_fingerprint
from skulkd.swarm.js_values import (
    is_number,
    iso_time,
    non_negative_integer,
    optional_text,
    round_half_up,
    round_ratio,
)
from skulkd.swarm.node_config import NodeConfig, NodeSettings

RUNTIME_PROTOCOL = 1
LOAD_BALANCER_PROTOCOL = 1
SOURCE = "mcoda"
LATENCY_SAMPLES = 50
FAILURES_KEPT = 20
FAILURES_REPORTED = 10
HARDWARE_SCHEMA = 1
GIB = 1024**3
_RAM_EDGES = (8, 16, 32, 64, 128)
_VRAM_TIERS = ("none", "lt8", "8-15", "16-31", "32plus")

ExecutionClass = Literal["chat", "agentic", "generic_job"]
Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Clocks:
    """A monotonic clock for intervals, the wall clock for what people read."""

    monotonic: Callable[[], float]
    wall: Callable[[], datetime]

    def unix_seconds(self) -> int:
        return math.floor(self.wall().timestamp())


@dataclass(slots=True)
class Counters:
    """What is going on and what went on lately. `now` is the wall clock, for failures only."""

    now: Callable[[], datetime]
    active_llm: int = 0
    active_generic: int = 0
    queued_llm: float = 0
    queued_generic: float = 0
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCY_SAMPLES))
    failures: deque[Report] = field(default_factory=lambda: deque(maxlen=FAILURES_KEPT))
    """Newest first."""

    def begin(self, kind: ExecutionClass) -> None:
        if kind == "generic_job":
            self.active_generic += 1
        else:
            self.active_llm += 1

    def finish(
        self, kind: ExecutionClass, took_ms: float, *, ok: bool, code: str | None = None
    ) -> None:
        """Failures count for latency, too. Their text stays here: it may be a user's."""
        if kind == "generic_job":
            self.active_generic = max(0, self.active_generic - 1)
        else:
            self.active_llm = max(0, self.active_llm - 1)
        self.latencies_ms.append(max(0.0, took_ms))
        if not ok:
            label = "generic_job" if kind == "generic_job" else "agentic"
            self.failures.appendleft(
                {
                    "execution_class": label,
                    "code": optional_text(code) or "upstream_error",
                    "at": iso_time(self.now()),
                }
            )

    def average_ms(self, fallback: int | None = None) -> int | None:
        if not self.latencies_ms:
            return fallback
        return round_half_up(sum(self.latencies_ms) / len(self.latencies_ms))


def class_capacity(maximum: float, active: object, queued: object, *, drain: bool) -> Report:
    """One execution class. A drained one has no free slot whatever runs."""
    limit = max(1, math.floor(maximum))
    running, waiting = non_negative_integer(active), non_negative_integer(queued)
    return {
        "max_concurrency": limit,
        "active_jobs": running,
        "queued_jobs": waiting,
        "free_slots": 0 if drain else max(0, limit - running - waiting),
    }


@dataclass(frozen=True, slots=True)
class Discovery:
    """The models that were found, and how long listing them took."""

    models: Sequence[Mapping[str, Any]] = ()
    latency_ms: int | None = None
    failures: int = 0

    @property
    def status(self) -> str:
        return "degraded" if self.failures else "online"

    @property
    def exposed(self) -> int:
        return sum(model.get("exposed") is not False for model in self.models)


def load_telemetry(
    settings: NodeSettings,
    counters: Counters,
    discovery: Discovery | None = None,
    *,
    draining: bool = False,
    hardware: Report | None = None,
) -> Report:
    """Keys in the reference's order; `hardware` is reported only when the owner opted in."""
    found = discovery or Discovery()
    drain = draining or settings.drain_mode
    generic_enabled = settings.generic_jobs_enabled
    # Chat and agentic work share one pool, so both report the same numbers.
    llm = class_capacity(settings.llm_slots, counters.active_llm, counters.queued_llm, drain=drain)
    generic = class_capacity(
        settings.generic_slots,
        counters.active_generic,
        counters.queued_generic,
        drain=drain or not generic_enabled,
    )
    active = llm["active_jobs"] + generic["active_jobs"]
    queued = llm["queued_jobs"] + generic["queued_jobs"]
    failures = list(counters.failures)[:FAILURES_REPORTED]
    report: Report = {
        "runtime_protocol_version": RUNTIME_PROTOCOL,
        "load_balancer_protocol_version": LOAD_BALANCER_PROTOCOL,
        "catalog_metadata_version": METADATA_VERSION,
        "catalog_fingerprint": catalog_fingerprint(found.models),
        "max_concurrency": settings.slots,
        "max_concurrent_llm_jobs": settings.llm_slots,
        "max_concurrent_generic_jobs": settings.generic_slots if generic_enabled else 0,
        "active_jobs": active,
        "queued_jobs": queued,
        "free_slots": 0 if drain else max(0, settings.slots - active - queued),
        "drain_mode": drain,
        "execution_class_capacity": {"chat": llm, "agentic": dict(llm), "generic_job": generic},
        "avg_latency_ms": counters.average_ms(found.latency_ms),
        "recent_failure_count": len(failures) + non_negative_integer(found.failures),
        "recent_failures": failures,
    }
    if settings.hardware_telemetry_enabled and hardware is not None:
        report["hardware_pressure"] = hardware
    return report


@dataclass(frozen=True, slots=True)
class Machine:
    """The readings behind hardware pressure."""

    cores: int
    load_1m: float
    ram_total_bytes: float
    ram_free_bytes: float


def ram_bucket(total_bytes: float) -> str:
    gib = total_bytes / GIB
    if not math.isfinite(gib) or gib <= 0:
        return "unknown"
    return next((f"<={edge}GiB" for edge in _RAM_EDGES if gib <= edge), ">128GiB")


def vram_tier(max_vram_gb: float | None) -> str:
    """How much one GPU has, coarsely."""
    if max_vram_gb is None or max_vram_gb <= 0:
        return "none"
    edges = ((8, "lt8"), (16, "8-15"), (32, "16-31"))
    return next((tier for edge, tier in edges if max_vram_gb < edge), "32plus")


def shown_vram_tier(tier: object, gpu_count: int) -> str:
    if isinstance(tier, str) and tier in _VRAM_TIERS:
        return tier
    return "unknown" if gpu_count > 0 else "none"


def hardware_pressure(machine: Machine, capabilities: object, now: datetime) -> Report:
    """Ratios and tiers only: no names, drivers, serials, paths or users."""
    gpu = _gpu_of(capabilities)
    count = max(0, math.floor(gpu["count"])) if is_number(gpu.get("count")) else 0
    cores = max(1, machine.cores)
    total = machine.ram_total_bytes
    used = round_ratio((total - machine.ram_free_bytes) / total) if total > 0 else None
    return {
        "schema_version": HARDWARE_SCHEMA,
        "collected_at": iso_time(now),
        "cpu": {"core_count": cores, "load_1m_ratio": round_ratio((machine.load_1m or 0) / cores)},
        "ram": {"used_ratio": used, "total_bucket": ram_bucket(total)},
        "gpu": {
            "available": bool(gpu.get("available")),
            "count": count,
            "cuda": bool(gpu.get("cuda") or gpu.get("has_cuda")),
            "vram": {
                "total_tier": shown_vram_tier(gpu.get("vram_tier"), count),
                "used_ratio": None,
            },
        },
    }


def _gpu_of(capabilities: object) -> Mapping[str, Any]:
    found = capabilities
    for key in ("public_projection", "accelerators", "gpu"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


# Bodies of heartbeats and polls, keys in the reference's order


def heartbeat_body(
    config: NodeConfig,
    versions: tuple[str, int | None],
    discovery: Discovery,
    telemetry: Report,
    capabilities: Mapping[str, Any],
    now: datetime,
) -> Report:
    """`versions` are those of the daemon and of the gateway's configuration of this node."""
    latency = telemetry["avg_latency_ms"]
    failed = discovery.failures > 0
    body: Report = {
        "node_id": config.node_id,
        "node_version": versions[0],
        "runtime_protocol_version": RUNTIME_PROTOCOL,
        "config_version": versions[1],
        "status": discovery.status,
        "runtime": {
            "protocol_version": RUNTIME_PROTOCOL,
            "relay_mode": config.relay_mode,
            "load_reporting_enabled": config.load_reporting_enabled,
            "hardware_telemetry_enabled": config.hardware_telemetry_enabled,
            "drain_mode": telemetry["drain_mode"],
        },
        "discovery": {"source": SOURCE, "mcoda_status": "error" if failed else "ok"},
        "ollama": {"status": None, "version": None},
        "capacity": heartbeat_capacity(telemetry, load_reporting=config.load_reporting_enabled),
        "health": {
            "avg_latency_ms": discovery.latency_ms if latency is None else latency,
            "recent_failure_count": telemetry["recent_failure_count"],
            "recent_failures": telemetry["recent_failures"],
            "last_success_at": None if failed else iso_time(now),
        },
        "local_agent_catalog": {
            "revision": telemetry["catalog_fingerprint"],
            "metadata_version": telemetry["catalog_metadata_version"],
            "model_count": len(discovery.models),
            "exposed_model_count": discovery.exposed,
        },
        "models": list(discovery.models),
        "capabilities": dict(capabilities),
    }
    if "hardware_pressure" in telemetry:
        body["hardware_pressure"] = telemetry["hardware_pressure"]
    return body


def heartbeat_report(
    discovery: Discovery, telemetry: Report, response: Mapping[str, Any]
) -> Report:
    """The result of one heartbeat, as the reference's `once` prints it."""
    return {
        "enrolled": False,
        "status": discovery.status,
        "model_count": discovery.exposed,
        "discovery_source": SOURCE,
        "mcoda_agent_count": discovery.exposed,
        "ollama_version": None,
        "capacity": telemetry,
        "heartbeat_response": dict(response),
    }


def heartbeat_capacity(telemetry: Report, *, load_reporting: bool) -> Report:
    """The part of the telemetry that goes into a heartbeat."""
    if not load_reporting:
        return {key: telemetry[key] for key in ("active_jobs", "queued_jobs")}
    health = {"avg_latency_ms", "recent_failure_count", "recent_failures", "hardware_pressure"}
    shown = {key: value for key, value in telemetry.items() if key not in health}
    return {"protocol_version": telemetry["runtime_protocol_version"], **shown}


def poll_capacity(telemetry: Report) -> Report:
    """The capacity of a poll, complete even when load reporting is off."""
    return {
        "active_jobs": telemetry["active_jobs"],
        "queued_jobs": telemetry["queued_jobs"],
        "max_jobs": telemetry["max_concurrency"],
        "max_concurrency": telemetry["max_concurrency"],
        "free_slots": telemetry["free_slots"],
        "drain_mode": telemetry["drain_mode"],
    }
