"""The placed models of this cluster as agents of a gateway node. Pure."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from typing import Any

from skulkd.store.catalogue import resolve_capabilities
from skulkd.swarm.capabilities import Probed, no_gpu, no_software
from skulkd.swarm.generic_jobs import RUNNER_OF_TYPE
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.node_load import serves
from skulkd.swarm.script_values import normalize_server_name
from skulkd.wire.instances import Instance
from skulkd.wire.machine import MemoryUsage, SystemPerformanceProfile
from skulkd.wire.runners import RunnerFailed
from skulkd.wire.state import State

ADAPTER = "openai-compatible-local"
GIB = 1024**3
# Others are no GPU, or nobody knows what: a machine without one reports its CPU here.
_GPU_VENDORS = frozenset({"apple", "amd", "nvidia", "intel"})
_ARCHES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}


def cluster_agents(state: State) -> list[dict[str, Any]]:
    """One agent per placed model, in a stable order. A model that serves nowhere is not healthy."""
    placed: dict[str, list[Instance]] = {}
    for instance in state.instances.values():
        placed.setdefault(str(instance.shard_assignments.model_id), []).append(instance)
    slugs = slugs_of(sorted(placed))
    return [
        {
            "id": slugs[model],
            "slug": slugs[model],
            "adapter": ADAPTER,
            "defaultModel": model,
            "contextWindow": _context(placed[model]),
            "supportsTools": _supports_tools(placed[model]),
            "capabilities": ["chat"],
            "health": {"status": _health(state, placed[model])},
        }
        for model in sorted(placed)
    ]


def slugs_of(models: Sequence[str]) -> dict[str, str]:
    """Short names of plain ASCII, which sort the same everywhere; the whole id where two clash."""
    short = {model: normalize_server_name(model.rsplit("/", 1)[-1]) for model in models}
    taken = list(short.values())
    return {
        model: slug if taken.count(slug) == 1 else normalize_server_name(model)
        for model, slug in short.items()
    }


def _supports_tools(instances: Sequence[Instance]) -> bool:
    shards = instances[0].shard_assignments.runner_to_shard.values()
    return any(resolve_capabilities(shard.model_card).supports_tool_calling for shard in shards)


def _context(instances: Sequence[Instance]) -> int | None:
    limits = [instance.context_token_limit for instance in instances]
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None


def _health(state: State, instances: Sequence[Instance]) -> str:
    if any(serves(state, instance) for instance in instances):
        return "healthy"
    broken = [
        any(
            isinstance(state.runners.get(runner), RunnerFailed)
            for runner in instance.shard_assignments.runner_to_shard
        )
        for instance in instances
    ]
    return "unreachable" if all(broken) else "degraded"


def probe_machine(
    config: NodeConfig,
    kinds: frozenset[str],
    system: SystemPerformanceProfile | None,
    memory: MemoryUsage | None,
) -> Probed:
    """What the gateway may know of this machine; its GPU only when the owner opted in."""
    job_types = [job_type for job_type, kind in RUNNER_OF_TYPE.items() if kind in kinds]
    generic = config.generic_enabled and bool(job_types)
    machine = platform.machine().lower()
    return Probed(
        platform="darwin" if sys.platform == "darwin" else "linux",
        arch=_ARCHES.get(machine, machine),
        gpu=_gpu(system, memory) if config.hardware else no_gpu(),
        software=no_software(),
        generic_enabled=generic,
        job_types=job_types if generic else [],
        trust_modes=["owner-local", "tenant-owned"] if generic else [],
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
