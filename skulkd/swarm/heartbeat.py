"""The body of a heartbeat, keys in the reference's order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.script_values import iso_time
from skulkd.swarm.telemetry import RUNTIME_PROTOCOL, Report, heartbeat_capacity

SOURCE = "mcoda"


@dataclass(frozen=True, slots=True)
class Look:
    """What was found when the node looked at its models, and how long that took."""

    models: Sequence[Mapping[str, Any]]
    latency_ms: int
    failed: bool = False

    @property
    def status(self) -> str:
        return "degraded" if self.failed else "online"

    @property
    def exposed(self) -> int:
        return sum(model.get("exposed") is not False for model in self.models)


@dataclass(frozen=True, slots=True)
class Facts:
    """The rest of what a heartbeat tells."""

    version: str
    config_version: int | None
    capabilities: Mapping[str, Any]
    now: datetime


def heartbeat_body(config: NodeConfig, look: Look, telemetry: Report, facts: Facts) -> Report:
    latency = telemetry["avg_latency_ms"]
    body: Report = {
        "node_id": config.node_id,
        "node_version": facts.version,
        "runtime_protocol_version": RUNTIME_PROTOCOL,
        "config_version": facts.config_version,
        "status": look.status,
        "runtime": {
            "protocol_version": RUNTIME_PROTOCOL,
            "relay_mode": config.relay_mode,
            "load_reporting_enabled": config.load_reporting,
            "hardware_telemetry_enabled": config.hardware,
            "drain_mode": telemetry["drain_mode"],
        },
        "discovery": {"source": SOURCE, "mcoda_status": "error" if look.failed else "ok"},
        "ollama": {"status": None, "version": None},
        "capacity": heartbeat_capacity(telemetry, load_reporting=config.load_reporting),
        "health": {
            "avg_latency_ms": look.latency_ms if latency is None else latency,
            "recent_failure_count": telemetry["recent_failure_count"],
            "recent_failures": telemetry["recent_failures"],
            "last_success_at": None if look.failed else iso_time(facts.now),
        },
        "local_agent_catalog": {
            "revision": telemetry["catalog_fingerprint"],
            "metadata_version": telemetry["catalog_metadata_version"],
            "model_count": len(look.models),
            "exposed_model_count": look.exposed,
        },
        "models": list(look.models),
        "capabilities": dict(facts.capabilities),
    }
    if "hardware_pressure" in telemetry:
        body["hardware_pressure"] = telemetry["hardware_pressure"]
    return body


def once_report(
    look: Look, telemetry: Report, answer: Mapping[str, Any], *, enrolled: bool
) -> Report:
    """What one heartbeat came to, as the reference's `once` prints it."""
    return {
        "enrolled": enrolled,
        "status": look.status,
        "model_count": look.exposed,
        "discovery_source": SOURCE,
        "mcoda_agent_count": look.exposed,
        "ollama_version": None,
        "capacity": telemetry,
        "heartbeat_response": dict(answer),
    }
