"""Minutes of random kills, freezes and cuts under load.

`make soak` runs it; SKULK_SOAK_SECONDS sets how long (900 by default), SKULK_SOAK_SEED repeats a
run. A failure tells the seed, every act with its moment, and what the nodes said last.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from skulkd.store.tiny import TINY_MODEL_ID
from tests.cluster_live.agreement import wait_equal, wait_tidy
from tests.cluster_live.chaos import Chaos
from tests.cluster_live.chatting import question
from tests.cluster_live.chronicle import Chronicle, telling
from tests.cluster_live.cluster import LiveCluster, make_cluster
from tests.cluster_live.lan import Lan, lan, lan_missing
from tests.cluster_live.live_node import LiveNode
from tests.cluster_live.soak_client import Client
from tests.daemon_process import wait_until

SOAK_S = float(os.environ.get("SKULK_SOAK_SECONDS", "900"))
SEED = int(os.environ.get("SKULK_SOAK_SEED", str(time.time_ns())))
NODES, CLIENTS = 4, 3
SETTLE_S = 600.0

log = logging.getLogger(__name__)


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
    if network is None:
        log.warning("no cuts: %s", lan_missing())
    cluster.place(on=cluster.nodes[1])
    chronicle = Chronicle(SEED)
    clients = [Client(cluster, chronicle, random.Random(SEED + one)) for one in range(CLIENTS)]
    chaos = Chaos(cluster, chronicle, random.Random(SEED), network)
    with telling(chronicle, cluster.nodes):
        with asking(clients):
            ends = time.monotonic() + SOAK_S
            while time.monotonic() < ends:
                chaos.strike()
        total: Counter[str] = sum((client.results for client in clients), Counter())
        told = f"seed {SEED}, done {dict(chaos.done)}, requests {dict(total)}"
        log.info(told)
        bad = [line for client in clients for line in client.bad]
        assert not bad, f"{told}: {bad[:10]}"
        assert total["answered"] > total["retryable"], told
        check_end(cluster)


def answers_at_last(node: LiveNode) -> bool:
    """A copy of the model may just be going; the client is told to ask again then, as always."""
    reply = node.post("/v1/chat/completions", question())
    if reply.status != 200:
        log.info("%s: %s", node.name, reply)
        assert "retry-after" in reply.headers, f"{node.name}: {reply}"
    return reply.status == 200


@contextlib.contextmanager
def asking(clients: list[Client]) -> Iterator[None]:
    threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for client in clients:
            client.stop.set()
        for thread in threads:
            thread.join(SETTLE_S)


def check_end(cluster: LiveCluster) -> None:
    """One master, one state, a model that answers, and no process too many, now or afterwards."""
    cluster.wait_formed(cluster.nodes)
    wait_until(lambda: not cluster.nodes[0].state()["tasks"], "no task that is left", SETTLE_S)
    wait_equal(cluster.nodes)
    placed = [
        content["shardAssignments"]["modelId"]
        for instance in cluster.nodes[0].state()["instances"].values()
        for content in instance.values()
    ]
    assert placed == [TINY_MODEL_ID]
    for node in cluster.nodes:
        wait_until(lambda one=node: answers_at_last(one), f"an answer of {node.name}", SETTLE_S)
    wait_tidy(cluster)
    runners = [node.name for node in cluster.nodes for _ in node.runner_pids()]
    assert len(runners) == 1, f"one instance of one rank has runners on {runners}"
    for node in cluster.nodes:
        assert node.stop() == 0, node.name
    wait_tidy(cluster)
