"""Space on the volume that holds the models directory; knows nothing of what lies in it."""

import shutil
from pathlib import Path

from skulkd.wire.base import Memory
from skulkd.wire.machine import DiskUsage


def read_disk(models_dir: Path) -> DiskUsage:
    """Total and free bytes (for this user) where `models_dir` is or will be made."""
    path = models_dir.absolute()
    for candidate in (path, *path.parents):
        try:
            usage = shutil.disk_usage(candidate)
        except (FileNotFoundError, NotADirectoryError):
            continue
        return DiskUsage(total=Memory.of(usage.total), available=Memory.of(usage.free))
    raise FileNotFoundError(f"no existing parent of {models_dir}")
