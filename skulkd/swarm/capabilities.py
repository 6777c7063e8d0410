"""What this machine could do besides chat, signed with the runtime token.

The gateway checks the signature over the exact bytes, so key order is part of the contract.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from skulkd.swarm.generic_jobs import RUNNER_OF_TYPE
from skulkd.swarm.js_values import compact_json, iso_time, sha256_hex
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.telemetry import GIB, vram_tier
from skulkd.wire.machine import MemoryUsage, SystemPerformanceProfile

SCHEMA = "2026-06-14"
KEY_ID = "self_hosted_runtime_token"
SOFTWARE = ("docker", "docker-nvidia", "blender", "ffmpeg")
# Others are no GPU, or not known: a machine without one reports its CPU here.
_GPU_VENDORS = frozenset({"apple", "amd", "nvidia", "intel"})
_ARCHES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}

Block = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MachineProbe:
    """What the gateway may know of this machine; nothing more is looked for."""

    platform: str
    arch: str
    gpu: Block
    job_types: Sequence[str] = ()
    """Kinds of generic jobs that the owner enabled."""


def no_gpu() -> Block:
    return {"status": "missing", "count": 0, "vendors": [], "devices": []}


def snapshot(node_id: str, probe: MachineProbe, captured_at: datetime) -> Block:
    """The unsigned facts, without id. A chat node has no use for other software."""
    return {
        "schema_version": SCHEMA,
        "captured_at": iso_time(captured_at),
        "node_id": node_id,
        "platform": probe.platform,
        "arch": probe.arch,
        "generic_jobs_enabled": bool(probe.job_types),
        "job_types": list(probe.job_types),
        "trust_modes": ["owner-local", "tenant-owned"] if probe.job_types else [],
        "gpu": probe.gpu,
        "software": {name: {"name": name, "status": "missing"} for name in SOFTWARE},
        "runner_catalog": [],
    }


def snapshot_id(facts: Block) -> str:
    return f"caps_{sha256_hex(compact_json(facts))[:16]}"


def missing_parts(facts: Block) -> list[Block]:
    """Everything that is not there, with what the probe said."""
    parts = [{"name": "gpu", **_status(facts["gpu"])}, *facts["software"].values()]
    return [part for part in parts if part["status"] != "available"]


def _status(part: Block) -> Block:
    return {key: part[key] for key in ("status", "message") if key in part}


def unsigned_payload(facts: Block, diagnostics: Sequence[Block]) -> Block:
    """The block as it is signed."""
    identity = snapshot_id(facts)
    whole = {**facts, "snapshot_id": identity}
    if diagnostics:
        whole["diagnostics"] = list(diagnostics)
    match = _scheduler_match(facts, identity)
    public = _public_projection(facts, identity)
    return {
        "schema_version": facts["schema_version"],
        "snapshot_id": identity,
        "private_catalog_entry": {
            "node_id": facts["node_id"],
            "snapshot_id": identity,
            "captured_at": facts["captured_at"],
            "snapshot": whole,
            "scheduler_match": match,
            "public_projection": public,
        },
        "scheduler_match": match,
        "public_projection": public,
    }


def signed_payload(unsigned: Block, runtime_token: str, signed_at: datetime) -> Block:
    mac = hmac.new(runtime_token.encode(), compact_json(unsigned).encode(), hashlib.sha256)
    value = base64.urlsafe_b64encode(mac.digest()).rstrip(b"=").decode()
    return {
        **unsigned,
        "signature": {
            "alg": "HS256",
            "value": value,
            "signed_at": iso_time(signed_at),
            "key_id": KEY_ID,
        },
    }


def capability_block(node_id: str, probe: MachineProbe, runtime_token: str, now: datetime) -> Block:
    """Facts, projections and signature in one."""
    facts = snapshot(node_id, probe, now)
    return signed_payload(unsigned_payload(facts, missing_parts(facts)), runtime_token, now)


def _is_available(facts: Block, name: str) -> bool:
    return bool(facts["software"].get(name, {}).get("status") == "available")


def _has_cuda(facts: Block) -> bool:
    gpu = facts["gpu"]
    return gpu["status"] == "available" and "nvidia" in gpu["vendors"]


def _names(facts: Block) -> list[str]:
    names = ["generic_jobs"] if facts["generic_jobs_enabled"] else []
    names += [f"job_type:{job_type}" for job_type in facts["job_types"]]
    if facts["gpu"]["status"] == "available":
        names += ["gpu", *(f"gpu.{vendor}" for vendor in facts["gpu"]["vendors"])]
    if _has_cuda(facts):
        names.append("cuda")
    words = {
        "docker": "software.docker",
        "docker-nvidia": "docker.nvidia",
        "blender": "software.blender",
        "ffmpeg": "software.ffmpeg",
    }
    names += [word for name, word in words.items() if _is_available(facts, name)]
    return sorted(set(names))


def _scheduler_match(facts: Block, identity: str) -> Block:
    gpu = facts["gpu"]
    memory = {"max_vram_gb": gpu["max_vram_gb"]} if "max_vram_gb" in gpu else {}
    return {
        "schema_version": facts["schema_version"],
        "snapshot_id": identity,
        "node_id": facts["node_id"],
        "updated_at": facts["captured_at"],
        "generic_jobs_enabled": facts["generic_jobs_enabled"],
        "available_job_types": list(facts["job_types"]),
        "trust_modes": list(facts["trust_modes"]),
        "resources": {
            "gpu_count": gpu["count"],
            "gpu_vendors": list(gpu["vendors"]),
            **memory,
            "has_cuda": _has_cuda(facts),
            "software": {
                "docker_nvidia": _is_available(facts, "docker-nvidia"),
                "blender": _is_available(facts, "blender"),
                "ffmpeg": _is_available(facts, "ffmpeg"),
            },
        },
        "capabilities": _names(facts),
    }


def _public_projection(facts: Block, identity: str) -> Block:
    gpu = facts["gpu"]
    software = {
        name.replace("-", "_"): {
            "available": _is_available(facts, name),
            "status": facts["software"][name]["status"],
        }
        for name in ("docker-nvidia", "blender", "ffmpeg")
    }
    return {
        "schema_version": facts["schema_version"],
        "snapshot_id": identity,
        "captured_at": facts["captured_at"],
        "generic_jobs_enabled": facts["generic_jobs_enabled"],
        "job_types": list(facts["job_types"]),
        "accelerators": {
            "gpu": {
                "available": gpu["status"] == "available",
                "count": gpu["count"],
                "vendors": list(gpu["vendors"]),
                "cuda": _has_cuda(facts),
                "vram_tier": vram_tier(gpu.get("max_vram_gb")),
            }
        },
        "software": software,
        "capabilities": _names(facts),
    }


def probe_machine(
    config: NodeConfig,
    runners: frozenset[str],
    system: SystemPerformanceProfile | None,
    memory: MemoryUsage | None,
) -> MachineProbe:
    """From readings of this machine; its GPU only when the owner opted in."""
    job_types = [job_type for job_type, runner in RUNNER_OF_TYPE.items() if runner in runners]
    machine = platform.machine().lower()
    return MachineProbe(
        platform="darwin" if sys.platform == "darwin" else "linux",
        arch=_ARCHES.get(machine, machine),
        gpu=_gpu(system, memory) if config.hardware_telemetry_enabled else no_gpu(),
        job_types=job_types if config.generic_jobs_enabled else [],
    )


def _gpu(system: SystemPerformanceProfile | None, memory: MemoryUsage | None) -> dict[str, Any]:
    found = system.accelerator if system is not None else None
    if found is None or found.vendor not in _GPU_VENDORS:
        return no_gpu()
    vendor = str(found.vendor)
    size = found.vram_total_bytes
    if vendor == "apple" and memory is not None:
        size = memory.ram_total.in_bytes  # one memory for both
    block: dict[str, Any] = {
        "status": "available",
        "count": 1,
        "vendors": [vendor],
        "devices": [{"id": "gpu-0", "vendor": vendor}],
    }
    if size:
        block["devices"][0]["vram_gb"] = size // GIB
        block["max_vram_gb"] = size // GIB
    return block
