"""Kills, freezes, restarts, a full disk, cuts and operators at work, under the load of 8 clients.

CI runs every kind of act once. `make soak` goes on for SKULK_SOAK_SECONDS (600 by default) on
machines of their own where that can be; SKULK_SOAK_SEED repeats a run. The first node lives through
it and must end with no more threads and files than it had. A failure tells the seed, every act with
its moment, and what the nodes said last.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from skulkd.store.imports.tiny_model import TINY_MODEL_ID, TinyShape, make_tiny_model
from tests.cluster_live.agreement import SETTLE_S
from tests.cluster_live.chatting import question
from tests.cluster_live.cluster import LiveCluster, make_cluster
from tests.cluster_live.lan import Lan, lan, lan_missing
from tests.cluster_live.live_node import LiveNode
from tests.soak.checks import check_end
from tests.soak.chronicle import Chronicle, telling
from tests.soak.client import LENGTHS, Client, Texts
from tests.soak.faults import Faults
from tests.soak.growth import logged, warmed_up
from tests.soak.schedule import CUTS, LONGEST_S, Act, acts
from tests.soak.wanted import Wanted

SOAK_S = float(os.environ.get("SKULK_SOAK_SECONDS", "600"))
SEED = int(os.environ.get("SKULK_SOAK_SEED", str(time.time_ns())))
CI_SEED = int(os.environ.get("SKULK_SOAK_SEED", "17"))
SHARED_MODEL = "skulk/tiny-shared"
CLIENTS = 8
SMALL_DISK = "48m"

log = logging.getLogger(__name__)


@contextlib.contextmanager
def small_home(node: LiveNode) -> Iterator[bool]:
    """The node's home moved to a small file system; False when this machine does not allow it."""
    files = shutil.copytree(node.home, node.home.with_suffix(".moved"))
    order = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK},mode=700", "tmpfs", str(node.home)]
    mounted = subprocess.run(order, capture_output=True, check=False)
    if mounted.returncode != 0:
        log.warning("no full disk: %s", mounted.stderr.decode().strip())
        yield False
        return
    try:
        shutil.copytree(files, node.home, dirs_exist_ok=True)
        yield True
    finally:
        subprocess.run(["umount", "--lazy", str(node.home)], check=True)


def chaos(base: Path, seed: int, nodes: int, network: Lan | None, todo: Iterator[Act]) -> None:
    """A cluster with a model on one node and one on two, all acts, and the state afterwards."""
    machines = () if network is None else network.machines
    cluster = make_cluster(base, nodes, machines=machines)
    for node in cluster.nodes:
        make_tiny_model(node.home / "models", SHARED_MODEL, TinyShape(seed=1))
    with contextlib.ExitStack() as stack:
        has_small = stack.enter_context(small_home(cluster.nodes[-1]))
        stack.callback(cluster.end)
        cluster.start()
        cluster.wait_formed()
        cluster.wait_links()
        before = warmed_up(cluster, cluster.nodes[0])
        wanted = Wanted()
        wanted.placed[cluster.place(on=cluster.nodes[1])] = TINY_MODEL_ID
        wanted.placed[cluster.place(model_id=SHARED_MODEL, min_nodes=2)] = SHARED_MODEL
        texts = expected(cluster)
        chronicle = Chronicle(seed)
        faults = Faults(cluster, chronicle, wanted, network=network)
        faults.small = cluster.nodes[-1] if has_small else None
        clients = [
            Client(cluster, chronicle, texts, random.Random(seed + number))
            for number in range(CLIENTS)
        ]
        with telling(chronicle, cluster.nodes):
            with asking(clients), logged(cluster.nodes[0]):
                for act in todo:
                    faults.carry_out(act)
            judge(faults, clients)
            check_end(cluster, wanted, texts, before)


def expected(cluster: LiveCluster) -> Texts:
    """The greedy answers while nothing is wrong, which every node must agree on."""
    texts: dict[tuple[str, int], str] = {}
    for model in (TINY_MODEL_ID, SHARED_MODEL):
        for length in LENGTHS:
            replies = [
                node.post("/v1/chat/completions", question(length, model=model))
                for node in cluster.nodes
            ]
            found = {reply.body["choices"][0]["message"]["content"] for reply in replies}
            [texts[model, length]] = found
    return texts


@contextlib.contextmanager
def asking(clients: Sequence[Client]) -> Iterator[None]:
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


def judge(faults: Faults, clients: Sequence[Client]) -> None:
    """No wrong answer, no error that a client could not handle, and work was done."""
    total: Counter[str] = sum((client.results for client in clients), Counter())
    slowest = max(client.slowest for client in clients)
    told = f"seed {faults.chronicle.seed}, done {dict(faults.done)}, requests {dict(total)}"
    log.info("%s, slowest %.1f s (%s)\n%s", told, *slowest, faults.chronicle.story())
    bad = [*faults.wrong, *(line for client in clients for line in client.bad)]
    assert not bad, f"{told}: {bad[:10]}"
    assert total["answered"] > 0, told


@pytest.mark.timeout(1800)
def test_a_cluster_outlives_every_kind_of_misfortune_once(tmp_path: Path) -> None:
    kinds = list(LONGEST_S)
    todo = islice(acts(CI_SEED, 3, kinds, longest=0.5), len(kinds))
    chaos(tmp_path / "cluster", CI_SEED, 3, None, todo)


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 1800)
def test_a_cluster_outlives_everything(tmp_path: Path) -> None:
    missing = lan_missing()
    if missing:
        log.warning("no cuts: %s", missing)
    kinds = [*LONGEST_S, *(() if missing else CUTS)]
    with contextlib.ExitStack() as stack:
        network = None if missing else stack.enter_context(lan(4))
        chaos(tmp_path / "cluster", SEED, 4, network, until_over(acts(SEED, 4, kinds)))


def until_over(todo: Iterator[Act]) -> Iterator[Act]:
    ends = time.monotonic() + SOAK_S
    while time.monotonic() < ends:
        yield next(todo)
