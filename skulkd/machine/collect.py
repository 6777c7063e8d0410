"""The machine as the daemon sees it: every reading in one place, each with its deadline.

A reading that fails or hangs is None plus a warning; the others are not touched by it.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skulkd.machine.accelerator import AcceleratorReading, read_accelerator
from skulkd.machine.disk import read_disk
from skulkd.machine.flight import Collector, Outcome
from skulkd.machine.identity import read_identity
from skulkd.machine.mactop import MactopSample, read_mactop, with_sample
from skulkd.machine.memory import MemoryReader, MemoryReading
from skulkd.machine.metal import read_metal_limits
from skulkd.machine.network import read_network
from skulkd.machine.processes import ProcessReader, describe
from skulkd.machine.rdma import read_rdma
from skulkd.machine.system import SystemReader, with_accelerator
from skulkd.machine.tools import stop_running_tools
from skulkd.wire.base import Memory
from skulkd.wire.diagnostics import DiagnosticsProcess
from skulkd.wire.machine import (
    AcceleratorMetrics,
    DiskUsage,
    MemoryUsage,
    MetalLimits,
    NodeIdentity,
    NodeNetworkInfo,
    SystemPerformanceProfile,
)
from skulkd.wire.rdma import NodeRdma

# How long anybody waits for one reading. Longer than the limits of the tools it runs, so that
# a slow tool is named in the warning.
DEADLINES_S: Mapping[str, float] = {
    "memory": 2.0,
    "disk": 2.0,
    "system": 2.0,
    "accelerator": 3.0,
    "mactop": 5.0,
    "network": 3.0,
    "identity": 8.0,
    "metal": 3.0,
    "rdma": 60.0,
    "processes": 4.0,
}

# What changes rarely or costs a process to ask is read only this often.
REFRESH_S: Mapping[str, float] = {
    "accelerator": 5.0,
    "mactop": 5.0,
    "metal": 10.0,
    "network": 15.0,
    "rdma": 15.0,
    "identity": 60.0,
}


@dataclass(frozen=True, slots=True)
class Readings:
    """One look at the machine; None is "not read", and `warnings` says why."""

    memory: MemoryUsage | None
    wired: Memory | None
    disk: DiskUsage | None
    system: SystemPerformanceProfile | None
    network: NodeNetworkInfo | None
    identity: NodeIdentity | None
    warnings: tuple[str, ...]
    metal: MetalLimits | None = None
    rdma: NodeRdma | None = None


@dataclass(frozen=True, slots=True)
class MemoryNow:
    """Memory at this moment; `wired` is None where the system does not report it."""

    memory: MemoryUsage | None
    wired: Memory | None
    warnings: tuple[str, ...]


class MachineMonitor:
    """Asks the collectors without ever blocking the event loop."""

    def __init__(
        self,
        *,
        name: str,
        models_dir: Path,
        version: str,
        deadlines: Mapping[str, float] | None = None,
        collectors: Mapping[str, Callable[[], Any]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        platform: str = sys.platform,
    ) -> None:
        """`deadlines` and `collectors` replace the standard ones of the same name.

        `platform` decides which tools are asked: those of macOS for "darwin", else those of Linux.
        """
        limits = {**DEADLINES_S, **(deadlines or {})}
        reads = {**_standard_reads(name, models_dir, version, platform), **(collectors or {})}
        self._collectors = {
            key: Collector(
                key,
                read,
                deadline_s=limits[key],
                refresh_s=REFRESH_S.get(key, 0.0),
                clock=clock,
            )
            for key, read in reads.items()
        }

    async def read(self) -> Readings:
        """Everything but the processes, read side by side."""
        names = ("memory", "disk", "system", "accelerator", "network", "identity", "metal")
        asked = await asyncio.gather(*(self._collectors[name].ask() for name in names))
        found = dict(zip(names, asked, strict=True))
        memory: MemoryReading | None = found["memory"].value
        system: SystemPerformanceProfile | None = found["system"].value
        card: AcceleratorReading | None = found["accelerator"].value
        # Their tools take seconds: nobody waits for them.
        rdma, mactop = (self._collectors[name].latest() or Outcome() for name in ("rdma", "mactop"))
        return Readings(
            memory=memory.usage if memory else None,
            wired=memory.wired if memory else None,
            disk=found["disk"].value,
            system=_profile(system, card.metrics if card else None, mactop.value),
            network=found["network"].value,
            identity=found["identity"].value,
            warnings=(
                *_problems([*asked, rdma, mactop]),
                *_rdma_problems(rdma.value),
                *(card.warnings if card else ()),
            ),
            metal=found["metal"].value,
            rdma=rdma.value,
        )

    async def read_processes(
        self, runner_pids: frozenset[int]
    ) -> tuple[tuple[DiagnosticsProcess, ...], tuple[str, ...]]:
        """Relevant processes by pid, and warnings; `runner_pids` are those of the supervisors."""
        outcome = await self._collectors["processes"].ask()
        return describe(outcome.value or (), runner_pids), _problems([outcome])

    async def read_memory_now(self) -> MemoryNow:
        """Memory alone, for answers that compare it with what was gathered before."""
        outcome = await self._collectors["memory"].ask()
        reading: MemoryReading | None = outcome.value
        return MemoryNow(
            memory=reading.usage if reading else None,
            wired=reading.wired if reading else None,
            warnings=_problems([outcome]),
        )

    def close(self) -> None:
        """Stop tools that still run. Hung threads are left behind; they end with the process."""
        stop_running_tools()


def _standard_reads(
    name: str, models_dir: Path, version: str, platform: str
) -> dict[str, Callable[[], Any]]:
    return {
        "memory": _on_first_call(lambda: MemoryReader(platform=platform)),
        "disk": lambda: read_disk(models_dir),
        "system": _on_first_call(lambda: SystemReader(platform=platform)),
        "accelerator": lambda: read_accelerator(platform=platform),
        "network": lambda: read_network(platform=platform),
        "identity": lambda: read_identity(name, version, platform),
        "metal": read_metal_limits if platform == "darwin" else lambda: None,
        "mactop": read_mactop if platform == "darwin" else lambda: None,
        "rdma": read_rdma,
        "processes": _on_first_call(ProcessReader),
    }


def _on_first_call(make: Callable[[], Callable[[], Any]]) -> Callable[[], Any]:
    """Make the reader where it is used: looking for its files is reading, too."""
    made: list[Callable[[], Any]] = []

    def read() -> Any:
        if not made:
            made.append(make())
        return made[0]()

    return read


def _profile(
    system: SystemPerformanceProfile | None,
    accelerator: AcceleratorMetrics | None,
    sample: MactopSample | None,
) -> SystemPerformanceProfile | None:
    if system is None:
        return None
    return with_sample(with_accelerator(system, accelerator), sample)


def _rdma_problems(rdma: NodeRdma | None) -> tuple[str, ...]:
    return () if rdma is None else tuple(f"rdma: {problem}" for problem in rdma.problems)


def _problems(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    return tuple(outcome.problem for outcome in outcomes if outcome.problem is not None)
