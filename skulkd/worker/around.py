"""What a worker uses of its node: files, memory, other nodes, and how processes are started."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from skulkd.machine.memory import MemoryReader
from skulkd.peers import Peers
from skulkd.runner.protocol import TaskTrace
from skulkd.wire.machine import MemoryUsage
from skulkd.worker.model_files import Library, ModelFiles
from skulkd.worker.process import Spawn


@dataclass(frozen=True, slots=True)
class Around:
    """Without `peers` there are no ranks on other nodes."""

    library: Library
    log_dir: Path
    peers: Peers | None = None
    files: ModelFiles | None = None
    """Brings files from elsewhere; without it only what the library has is served."""
    memory: Callable[[], MemoryUsage] | None = None
    spawn: Spawn | None = None
    environ: Mapping[str, str] | None = None
    on_trace: Callable[[TaskTrace], None] = lambda _: None
    """Takes what a rank measured of a traced task."""


def memory_reader() -> Callable[[], MemoryUsage]:
    """Blocking, and fresh at every call."""
    read = MemoryReader()
    return lambda: read().usage
