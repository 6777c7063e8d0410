"""What a worker uses of its node: files, memory, other nodes, and how processes are started."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from skulkd.machine.accelerator_nvidia import Gpu
from skulkd.machine.memory import OVERRIDE, MemoryReader
from skulkd.peers import Peers
from skulkd.runner.protocol import TaskTrace
from skulkd.wire.ids import InstanceId
from skulkd.wire.machine import MemoryUsage
from skulkd.wire.topology import Topology
from skulkd.worker.group_keys import RankSecurity
from skulkd.worker.model_files import Library, ModelFiles
from skulkd.worker.process import Spawn

# For drills: what the guard finds when it comes to loading, whatever the planner was told.
GUARD_MEMORY = "SKULK_GUARD_MEMORY_MB"


@dataclass(frozen=True, slots=True)
class Around:
    """Without `peers` there are no ranks on other nodes."""

    library: Library
    log_dir: Path
    peers: Peers | None = None
    security: RankSecurity | None = None
    """Protects the connections between ranks; needed for ranks on other nodes."""
    files: ModelFiles | None = None
    """Brings files from elsewhere; without it only what the library has is served."""
    memory: Callable[[], MemoryUsage] | None = None
    gpu: Callable[[], Gpu | None] | None = None
    """Asked only where MLX is built for CUDA."""
    spawn: Spawn | None = None
    environ: Mapping[str, str] | None = None
    on_trace: Callable[[TaskTrace], None] = lambda _: None
    """Takes what a rank measured of a traced task."""
    homeless: Callable[[], Collection[InstanceId]] = tuple
    """Instances that lost a node and wait for another place."""
    topology: Callable[[], Topology] = Topology
    """Who reaches whom, with the cables as they are now."""


def memory_reader(environ: Mapping[str, str] = os.environ) -> Callable[[], MemoryUsage]:
    """Blocking, and fresh at every call. A drill may have less found here than was reported."""
    told = {OVERRIDE: environ[GUARD_MEMORY]} if GUARD_MEMORY in environ else {}
    read = MemoryReader(environ={**environ, **told})
    return lambda: read().usage
