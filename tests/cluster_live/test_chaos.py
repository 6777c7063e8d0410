"""Minutes of random kills, freezes and cuts under load, and two hundred joins and leaves.

`make soak` runs it; SOAK_SECONDS sets how long (900 by default), SOAK_SEED repeats a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from skulkd.store.tiny import TINY_MODEL_ID
from tests.cluster_live.chaos import Chaos, Client
from tests.cluster_live.cluster import LiveCluster, StartCluster, make_cluster
from tests.cluster_live.lan import Lan, lan, lan_missing
from tests.cluster_live.test_losing import answers, come_and_go
from tests.daemon_process import wait_until

SOAK_S = float(os.environ.get("SOAK_SECONDS", "900"))
SEED = int(os.environ.get("SOAK_SEED", str(time.time_ns())))
NODES, CLIENTS = 4, 3
SETTLE_S = 180.0


@pytest.fixture
def playground(tmp_path: Path) -> Iterator[tuple[LiveCluster, Lan | None]]:
    """Four nodes, on machines of their own where that can be."""
    with contextlib.ExitStack() as stack:
        network = None if lan_missing() else stack.enter_context(lan(NODES))
        machines = () if network is None else network.machines
        made = make_cluster(tmp_path / "cluster", NODES, machines=machines)
        stack.callback(made.end)
        made.start()
        made.wait_formed()
        yield made, network


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 900)
def test_a_cluster_outlives_everything(playground: tuple[LiveCluster, Lan | None]) -> None:
    cluster, network = playground
    cluster.place(on=cluster.nodes[1])
    clients = [Client(cluster, random.Random(SEED + number)) for number in range(CLIENTS)]
    threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    chaos = Chaos(cluster, random.Random(SEED), network)
    ends = time.monotonic() + SOAK_S
    while time.monotonic() < ends:
        chaos.strike()
        cluster.wait_formed(cluster.nodes)
    for client in clients:
        client.stop.set()
    for thread in threads:
        thread.join(SETTLE_S)
    total: Counter[str] = sum((client.results for client in clients), Counter())
    told = f"seed {SEED}, done {dict(chaos.done)}, requests {dict(total)}"
    bad = [line for client in clients for line in client.bad]
    assert not bad, f"{told}: {bad[:10]}"
    assert total["answered"] > total["retryable"], told
    check_end(cluster)


def check_end(cluster: LiveCluster) -> None:
    """One master, one state, a model that answers, and no process too many."""
    cluster.wait_formed(cluster.nodes)
    wait_until(lambda: len(set(map(essence, cluster.nodes))) == 1, "equal states", SETTLE_S)
    wait_until(lambda: not cluster.nodes[0].state()["tasks"], "no task that is left", SETTLE_S)
    placed = [
        content["shardAssignments"]["modelId"]
        for instance in cluster.nodes[0].state()["instances"].values()
        for content in instance.values()
    ]
    assert TINY_MODEL_ID in placed
    assert all(answers(node) for node in cluster.nodes)

    def known() -> bool:
        return runners_below(cluster.base) == {
            pid for node in cluster.nodes for pid in node.runner_pids()
        }

    wait_until(known, "no runner that nobody knows", SETTLE_S)


def essence(node: Any) -> str:
    state = node.state()
    parts = {key: state[key] for key in ("instances", "runners", "tasks", "lastEventAppliedIdx")}
    return f"{parts} {sorted(state['nodeNetwork'])}"


def runners_below(base: Path) -> set[int]:
    """Runner processes whose home is in this directory."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            # A runner that was forked from the zygote has its own title or its parent's words.
            if process.environ().get("SKULK_HOME", "").startswith(str(base)) and any(
                "runner" in word for word in process.cmdline()
            ):
                found.add(process.pid)
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_joins_and_leaves(cluster: StartCluster) -> None:
    come_and_go(cluster(2, arguments=("--no-worker",)), rounds=100)
