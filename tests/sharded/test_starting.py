"""Ranks of real daemons that end in the middle of starting: the next attempt serves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from skulkd.store.imports.tiny_model import TinyShape, make_tiny_model
from tests.cluster_live.chatting import question
from tests.cluster_live.cluster import LiveCluster, make_cluster
from tests.daemon_process import wait_until
from tests.sharded.group import DEADLINE_S, LiveGroup, answer, create, delete, is_process

# Phases that last long enough to be struck; the next attempt goes through them as well.
FAULTS = {"SKULK_FAULTS": "stall_connect@*:0.5;wedge_warmup@*:0.5"}
DEEP = "local/deep"
LAYERS = 48
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


@pytest.fixture(scope="module")
def slowly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Three nodes whose ranks take their time, and a model with many small layers."""
    made = make_cluster(tmp_path_factory.mktemp("slowly"), 3, environ=FAULTS)
    for node in made.nodes:
        make_tiny_model(node.home / "models", DEEP, TinyShape(layers=LAYERS))
    try:
        made.start()
        made.wait_formed()
        made.wait_links()
        yield made
    finally:
        made.end()


@contextmanager
def struck(place: Callable[[], LiveGroup], rank: int, phase: str, number: int) -> Iterator[None]:
    """A group that lost a rank in this phase and serves again; gone with the block.

    Phases are short: when one passed unseen the group is placed again.
    """
    for _ in range(TRIES):
        group = place()
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
        yield
    finally:
        delete(group)


@pytest.mark.parametrize(("rank", "phase"), list(enumerate(PHASES)))
def test_a_rank_that_is_killed_while_starting(slowly: LiveCluster, rank: int, phase: str) -> None:
    """Each phase once, each rank once; what is left is for `make soak`."""
    with struck(lambda: create(slowly, slowly.nodes, model_id=DEEP), rank, phase, signal.SIGKILL):
        reply = slowly.nodes[0].post("/v1/chat/completions", question(2, model=DEEP))
        assert reply.status == 200, reply


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_rank_that_ends_while_starting(
    three: LiveCluster, rank: int, number: int, phase: str
) -> None:
    with struck(lambda: create(three, three.nodes), rank, phase, number):
        assert answer(three.nodes[0])
