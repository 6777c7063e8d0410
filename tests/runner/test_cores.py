"""Ranks that share a machine: each on its own cores."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from skulkd.runner.cpu.cores import share_of

PINNED = """
import os, threading
from skulkd.runner.cpu.cores import pin_to_share
done = threading.Event()
thread = threading.Thread(target=done.wait)
thread.start()
pin_to_share({cores}, {place}, {ranks})
print(*(sorted(os.sched_getaffinity(id)) for id in (0, thread.native_id)), sep=";")
done.set()
"""


@pytest.mark.parametrize(
    ("count", "ranks", "shares"),
    [
        (2, 2, [[0], [1]]),
        (8, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (5, 2, [[0, 1], [2, 3, 4]]),
        (2, 3, [[], [], []]),
        (1, 2, [[], []]),
    ],
)
def test_ranks_share_the_cores_of_their_machine(
    count: int, ranks: int, shares: list[list[int]]
) -> None:
    assert [share_of(list(range(count)), place, ranks) for place in range(ranks)] == shares


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_all_threads_of_a_rank_keep_to_its_share() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("one core")
    for place in range(2):
        share = share_of(allowed, place, 2)
        code = PINNED.format(cores=1, place=place, ranks=2)
        said = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert said.stdout.strip() == f"{share};{share}"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_a_rank_that_was_given_more_cores_than_its_share_is_not_kept_to_it() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    code = PINNED.format(cores=len(allowed) + 1, place=0, ranks=2)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"{allowed};{allowed}"
