"""Memory of this machine, of a Mac's vm_stat, and inside limits of control groups."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.machine.cgroup import (
    Level,
    Numbers,
    apply_limits,
    find_cgroup_dirs,
    locate,
    read_levels,
)
from skulkd.machine.memory import MemoryReader, VmStat, macos_available, parse_vm_stat
from skulkd.machine.tools import ToolError

from .conftest import Tree, wait_until

GIB = 1024**3

VM_STAT = """\
Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               16822.
Pages active:                            379221.
Pages inactive:                          366115.
Pages speculative:                        12034.
Pages throttled:                              0.
Pages wired down:                        131072.
Pages purgeable:                           4411.
"Translation faults":                 912387712.
Pages copy-on-write:                   41223117.
Pages zero filled:                    523311781.
Pages reactivated:                     12877712.
Pages purged:                           9911223.
File-backed pages:                       221344.
Anonymous pages:                         262144.
Pages stored in compressor:              301122.
Pages occupied by compressor:             65536.
Decompressions:                        18221144.
Compressions:                          24110099.
Pageins:                               11223344.
Pageouts:                                 88122.
Swapins:                                      0.
Swapouts:                                     0.
"""


def test_vm_stat_pages_become_bytes() -> None:
    assert parse_vm_stat(VM_STAT) == VmStat(wired=2 * GIB, anonymous=4 * GIB, compressor=GIB)


@pytest.mark.parametrize(
    "line", ["page size", "Pages wired down", "Anonymous pages", "Pages occupied by compressor"]
)
def test_vm_stat_without_a_needed_line_names_it(line: str) -> None:
    text = VM_STAT.replace(line, "Other")
    with pytest.raises(ToolError, match=line):
        parse_vm_stat(text)


def test_available_on_macos_is_what_is_not_wired_anonymous_or_compressed() -> None:
    stat = VmStat(wired=2 * GIB, anonymous=4 * GIB, compressor=GIB)
    assert macos_available(16 * GIB, stat) == 9 * GIB
    assert macos_available(6 * GIB, stat) == 0


def _meminfo() -> dict[str, int]:
    text = Path("/proc/meminfo").read_text()
    return {key: int(kib) * 1024 for key, kib in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}


@pytest.mark.skipif(sys.platform != "linux", reason="compares with /proc/meminfo")
def test_real_reading_agrees_with_the_kernel(tmp_path: Path) -> None:
    reader = MemoryReader(tmp_path)  # a root without control groups: the host itself

    def agrees() -> bool:
        before, usage, after = _meminfo(), reader().usage, _meminfo()
        lowest, highest = sorted([before["MemAvailable"], after["MemAvailable"]])
        slack = 4 * 1024**2
        return lowest - slack <= usage.ram_available.in_bytes <= highest + slack

    wait_until(agrees, "available memory is the kernel's")
    usage = reader().usage
    assert usage.ram_total.in_bytes == _meminfo()["MemTotal"]
    assert usage.swap_total.in_bytes == _meminfo()["SwapTotal"]
    assert reader().wired is None


def test_this_process_may_not_use_more_than_the_host_has(tmp_path: Path) -> None:
    own, host = MemoryReader()().usage, MemoryReader(tmp_path)().usage
    assert 0 < own.ram_available.in_bytes <= own.ram_total.in_bytes <= host.ram_total.in_bytes


V2_MOUNT = "34 23 0:29 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("groups", "mounts", "expected"),
    [
        pytest.param(
            "0::/system.slice/skulkd.service\n", V2_MOUNT,
            (2, "/sys/fs/cgroup", "system.slice/skulkd.service"), id="v2 service",
        ),
        pytest.param("0::/\n", V2_MOUNT, (2, "/sys/fs/cgroup", ""), id="v2 container"),
        pytest.param("0::/../other\n", V2_MOUNT, (2, "/sys/fs/cgroup", ""), id="v2 outside"),
        pytest.param(
            "4:cpu:/\n5:memory:/docker/abc\n", V1_MOUNT.format(root="/docker/abc"),
            (1, "/sys/fs/cgroup/memory", ""), id="v1 container",
        ),
        pytest.param(
            "4:cpu,memory:/batch/one\n0::/\n", V1_MOUNT.format(root="/") + V2_MOUNT,
            (1, "/sys/fs/cgroup/memory", "batch/one"), id="hybrid: memory is in v1",
        ),
        pytest.param("4:memory:/x\n", "", None, id="not mounted"),
    ],
)  # fmt: skip
def test_control_group_is_located(
    groups: str, mounts: str, expected: tuple[int, str, str] | None
) -> None:
    assert locate(groups, mounts) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux")
def test_container_limit_of_a_parent_group_is_obeyed(write_tree: Callable[[Tree], Path]) -> None:
    group = "sys/fs/cgroup/box/inner"
    root = write_tree(
        {
            "proc/self/cgroup": "0::/box/inner\n",
            "proc/self/mountinfo": V2_MOUNT,
            f"{group}/memory.max": "max\n",
            "sys/fs/cgroup/box/memory.max": f"{GIB}\n",
            "sys/fs/cgroup/box/memory.current": f"{GIB // 2}\n",
            "sys/fs/cgroup/box/memory.stat": f"anon 5\ninactive_file {GIB // 4}\n",
            "sys/fs/cgroup/box/memory.swap.max": "0\n",
        }
    )
    usage = MemoryReader(root)().usage
    assert usage.ram_total.in_bytes == GIB
    assert usage.ram_available.in_bytes == GIB - GIB // 4
    assert usage.swap_total.in_bytes == 0


def test_v1_limits_and_swap_share_are_read(write_tree: Callable[[Tree], Path]) -> None:
    group = "sys/fs/cgroup/memory"
    root = write_tree(
        {
            "proc/self/cgroup": "3:memory:/docker/abc\n",
            "proc/self/mountinfo": V1_MOUNT.format(root="/docker/abc"),
            f"{group}/memory.limit_in_bytes": f"{4 * GIB}\n",
            f"{group}/memory.usage_in_bytes": f"{2 * GIB}\n",
            f"{group}/memory.memsw.limit_in_bytes": f"{6 * GIB}\n",
            f"{group}/memory.memsw.usage_in_bytes": f"{2 * GIB + 7}\n",
            f"{group}/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}\n",
        }
    )
    found = find_cgroup_dirs(root)
    assert found is not None
    assert read_levels(found) == (Level(limit=4 * GIB, used=GIB, swap_limit=2 * GIB, swap_used=7),)


def test_v1_number_for_unlimited_is_no_limit(write_tree: Callable[[Tree], Path]) -> None:
    root = write_tree(
        {
            "proc/self/cgroup": "3:memory:/\n",
            "proc/self/mountinfo": V1_MOUNT.format(root="/"),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        }
    )
    found = find_cgroup_dirs(root)
    assert found is not None
    assert read_levels(found) == ()


_bytes = st.integers(min_value=0, max_value=1 << 50)
_levels = st.lists(
    st.builds(
        Level,
        limit=st.none() | _bytes,
        used=_bytes,
        swap_limit=st.none() | _bytes,
        swap_used=_bytes,
    )
)


@settings(deadline=None)
@given(total=_bytes, available=_bytes, swap=_bytes, swap_available=_bytes, levels=_levels)
def test_limits_only_ever_lower_the_numbers_of_the_host(
    total: int, available: int, swap: int, swap_available: int, levels: list[Level]
) -> None:
    host = Numbers(total, min(available, total), swap, min(swap_available, swap))
    limited = apply_limits(host, levels)
    assert 0 <= limited.available <= host.available
    assert limited.total == min([host.total, *(x.limit for x in levels if x.limit is not None)])
    assert limited.available <= limited.total
    assert 0 <= limited.swap_available <= limited.swap_total <= host.swap_total


@pytest.mark.parametrize(("told", "taken"), [("512", True), ("", False), ("much", False)])
def test_an_operator_may_say_what_is_available(tmp_path: Path, told: str, taken: bool) -> None:
    usage = MemoryReader(tmp_path, {"OVERRIDE_MEMORY_MB": told})().usage
    assert (usage.ram_available.in_bytes == 512 * 1024**2) == taken
    assert usage.ram_total.in_bytes > 0
