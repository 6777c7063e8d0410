"""How much work a node can take: counters, capacity, hardware pressure. Pure but for the counters.

The arithmetic is the reference's to the last rounding, because a gateway balances on it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from skulkd.swarm.catalog import METADATA_VERSION, catalog_fingerprint
from skulkd.swarm.script_values import (
    is_number,
    iso_time,
    non_negative_integer,
    optional_text,
    round_half_up,
    round_ratio,
)

RUNTIME_PROTOCOL = 1
LOAD_BALANCER_PROTOCOL = 1
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
class Limits:
    """How much the owner allows at once; what is not above zero means the default."""

    max_jobs: float = 1
    max_llm_jobs: float | None = None
    generic_enabled: bool = False
    max_generic_jobs: float = 1
    drain: bool = False
    hardware: bool = False

    @property
    def llm(self) -> int:
        return max(1, math.floor(self.max_llm_jobs or self.max_jobs or 1))

    @property
    def generic(self) -> int:
        return max(1, math.floor(self.max_generic_jobs or 1))

    @property
    def overall(self) -> int:
        generic = self.generic if self.generic_enabled else 1
        return max(1, math.floor(self.max_jobs or 1), self.llm, generic)


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
    """How looking for models went."""

    models: Sequence[Mapping[str, Any]] = ()
    latency_ms: int | None = None
    failures: int = 0


def load_telemetry(
    limits: Limits,
    counters: Counters,
    discovery: Discovery | None = None,
    hardware: Report | None = None,
) -> Report:
    """Keys in the reference's order; `hardware` is told only when the owner said so."""
    found = discovery or Discovery()
    drain = limits.drain
    # Chat and agentic work share one pool, so both tell the same numbers.
    llm = class_capacity(limits.llm, counters.active_llm, counters.queued_llm, drain=drain)
    generic = class_capacity(
        limits.generic,
        counters.active_generic,
        counters.queued_generic,
        drain=drain or not limits.generic_enabled,
    )
    active = llm["active_jobs"] + generic["active_jobs"]
    queued = llm["queued_jobs"] + generic["queued_jobs"]
    failures = list(counters.failures)[:FAILURES_REPORTED]
    report: Report = {
        "runtime_protocol_version": RUNTIME_PROTOCOL,
        "load_balancer_protocol_version": LOAD_BALANCER_PROTOCOL,
        "catalog_metadata_version": METADATA_VERSION,
        "catalog_fingerprint": catalog_fingerprint(found.models),
        "max_concurrency": limits.overall,
        "max_concurrent_llm_jobs": limits.llm,
        "max_concurrent_generic_jobs": limits.generic if limits.generic_enabled else 0,
        "active_jobs": active,
        "queued_jobs": queued,
        "free_slots": 0 if drain else max(0, limits.overall - active - queued),
        "drain_mode": drain,
        "execution_class_capacity": {"chat": llm, "agentic": dict(llm), "generic_job": generic},
        "avg_latency_ms": counters.average_ms(found.latency_ms),
        "recent_failure_count": len(failures) + non_negative_integer(found.failures),
        "recent_failures": failures,
    }
    if limits.hardware and hardware is not None:
        report["hardware_pressure"] = hardware
    return report


def heartbeat_capacity(telemetry: Report, *, load_reporting: bool) -> Report:
    """What of it goes into a heartbeat."""
    if not load_reporting:
        return {key: telemetry[key] for key in ("active_jobs", "queued_jobs")}
    health = {"avg_latency_ms", "recent_failure_count", "recent_failures", "hardware_pressure"}
    shown = {key: value for key, value in telemetry.items() if key not in health}
    return {"protocol_version": telemetry["runtime_protocol_version"], **shown}


def poll_capacity(telemetry: Report) -> Report:
    """What goes into a poll, in full whatever the owner says of load reporting."""
    return {
        "active_jobs": telemetry["active_jobs"],
        "queued_jobs": telemetry["queued_jobs"],
        "max_jobs": telemetry["max_concurrency"],
        "max_concurrency": telemetry["max_concurrency"],
        "free_slots": telemetry["free_slots"],
        "drain_mode": telemetry["drain_mode"],
    }


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


def unique_sorted(names: Iterable[str]) -> list[str]:
    return sorted(set(names))
