"""Ranks of real daemons that end in the middle of starting: the next attempt serves."""

from __future__ import annotations

import os
import signal

import pytest

from tests.cluster_live.cluster import LiveCluster
from tests.daemon_process import wait_until
from tests.sharded.group import DEADLINE_S, LiveGroup, answer, create, delete, is_process

# The others are moments; `tests/worker/test_group_starting.py` holds ranks where they are.
PHASES = ["RunnerConnecting", "RunnerLoading", "RunnerWarmingUp"]
TRIES = 40


def strike(group: LiveGroup, rank: int, phase: str, number: int) -> int | None:
    """Send the signal while the rank is in that phase; None when it passed unseen."""
    node = group.nodes[rank]
    seen: dict[str, object] = {}

    def there() -> bool:
        record = group.record(node)
        if record is not None:
            seen.update(record)
        return seen.get("statusKind") in {phase, "RunnerReady", "RunnerRunning"}

    wait_until(there, f"rank {rank} to be {phase}", DEADLINE_S)
    if seen["statusKind"] != phase:
        return None
    pid = seen["pid"]
    assert isinstance(pid, int)
    os.kill(pid, number)
    return pid


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_that_ends_while_starting(
    three: LiveCluster, rank: int, number: int, phase: str
) -> None:
    """Phases are short: when one passed unseen the group is placed again."""
    for _ in range(TRIES):
        group = create(three, three.nodes)
        pid = strike(group, rank, phase, number)
        if pid is not None:
            break
        delete(group)
    else:
        pytest.fail(f"never saw rank {rank} in {phase}")
    try:
        wait_until(lambda: not is_process(pid), "the rank to be gone", DEADLINE_S)
        group.wait_serving()
        assert pid not in group.pids()
        assert answer(three.nodes[0])
    finally:
        delete(group)
