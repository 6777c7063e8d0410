"""Memory limits that control groups (v1 and v2) put on this process; Linux only.

A container must not claim the memory of its host. Knows nothing of other readings.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from skulkd.machine.sysfs import read_int, read_text

# The v1 kernel writes "no limit" as a huge page-aligned number.
V1_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class CgroupDirs:
    """The directories from this process's group up to the mount, and their version (1 or 2)."""

    version: int
    dirs: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """What one group allows and holds, in bytes; None is "no limit here" or "not told"."""

    limit: int | None
    used: int
    swap_limit: int | None
    swap_used: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """The four memory numbers of a machine or container, in bytes."""

    total: int
    available: int
    swap_total: int
    swap_available: int


def apply_limits(host: Numbers, levels: Iterable[Level]) -> Numbers:
    """The tightest of the host's numbers and those of every group on the way up."""
    total, available = host.total, host.available
    swap_total, swap_available = host.swap_total, host.swap_available
    for level in levels:
        if level.limit is not None and level.limit < host.total:
            total = min(total, level.limit)
            available = min(available, max(0, level.limit - level.used))
        if level.swap_limit is not None and level.swap_limit < host.swap_total:
            swap_total = min(swap_total, level.swap_limit)
            swap_available = min(swap_available, max(0, level.swap_limit - level.swap_used))
    return Numbers(total, available, swap_total, swap_available)


def find_cgroup_dirs(root: Path = Path("/")) -> CgroupDirs | None:
    """Where the memory controller of this process lives; None without control groups."""
    groups = read_text(root / "proc/self/cgroup")
    mounts = read_text(root / "proc/self/mountinfo")
    if groups is None or mounts is None:
        return None
    located = locate(groups, mounts)
    if located is None:
        return None
    version, mount_point, group = located
    top = root / mount_point.lstrip("/")
    leaf = top / group
    chain = [leaf, *leaf.parents]
    return CgroupDirs(version, tuple(chain[: chain.index(top) + 1]))


def locate(groups: str, mounts: str) -> tuple[int, str, str] | None:
    """From /proc/self/cgroup and mountinfo: version, mount point, group path below it."""
    paths: dict[int, str] = {}
    for line in groups.splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            paths[1] = path
        elif hierarchy == "0" and not controllers:
            paths[2] = path
    for version in (1, 2):
        if version in paths:
            mount = _find_mount(mounts, version)
            if mount is not None:
                return version, mount[1], _below(paths[version], mount[0])
    return None


def _find_mount(mounts: str, version: int) -> tuple[str, str] | None:
    """Root and mount point of the memory hierarchy of that version."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, file_system = before.split(), after.split()
        if len(fields) < 5 or not file_system:
            continue
        kind = file_system[0]
        if (version == 2 and kind == "cgroup2") or (
            version == 1 and kind == "cgroup" and "memory" in file_system[-1].split(",")
        ):
            return fields[3], fields[4]
    return None


def _below(path: str, mount_root: str) -> str:
    """The group's path below the mount; empty when the mount does not show it."""
    group = PurePosixPath(path)
    if ".." in group.parts or not group.is_relative_to(mount_root):
        return ""
    return str(group.relative_to(mount_root)).removeprefix(".")


def read_levels(found: CgroupDirs) -> tuple[Level, ...]:
    """Read every group of the chain; groups without limit files are left out."""
    read = _read_v1 if found.version == 1 else _read_v2
    return tuple(level for level in map(read, found.dirs) if level is not None)


def _read_v2(path: Path) -> Level | None:
    limit = read_int(path / "memory.max")  # "max" is no number: no limit
    swap_limit = read_int(path / "memory.swap.max")
    if limit is None and swap_limit is None:
        return None
    return Level(
        limit=limit,
        used=_used(path, "memory.current", "inactive_file"),
        swap_limit=swap_limit,
        swap_used=read_int(path / "memory.swap.current") or 0,
    )


def _read_v1(path: Path) -> Level | None:
    limit = read_int(path / "memory.limit_in_bytes")
    if limit is None or limit >= V1_UNLIMITED:
        return None
    # v1 limits memory and swap together; the swap share is what is left above the memory.
    both = read_int(path / "memory.memsw.limit_in_bytes")
    both_used = read_int(path / "memory.memsw.usage_in_bytes")
    usage = read_int(path / "memory.usage_in_bytes") or 0
    return Level(
        limit=limit,
        used=_used(path, "memory.usage_in_bytes", "total_inactive_file"),
        swap_limit=None if both is None or both >= V1_UNLIMITED else both - limit,
        swap_used=0 if both_used is None else max(0, both_used - usage),
    )


def _used(path: Path, usage_file: str, reclaimable_key: str) -> int:
    """Bytes in use that the kernel cannot give back at once."""
    usage = read_int(path / usage_file) or 0
    stat = read_text(path / "memory.stat") or ""
    for line in stat.splitlines():
        key, _, value = line.partition(" ")
        if key == reclaimable_key and value.isdigit():
            return max(0, usage - int(value))
    return usage
