"""Three real daemons, each with the tools of a recorded Mac: edges, plans, a group that serves."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.cluster import LiveCluster, make_cluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import ROOT, wait_until
from tests.macs.recorded import install, record
from tests.macs.scenes import TRIO

STAND_IN = Path(__file__).parent / "stand_in"
MACS = {f"kite{number}": mac for number, mac in enumerate(TRIO.macs, 1)}


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Three minis, each cabled to both others; their own programs come before the system's."""
    base = tmp_path_factory.mktemp("macs")
    cluster = make_cluster(base, 3)
    for node in cluster.nodes:
        tools = install(base / "bin" / node.name, record(MACS[node.name], TRIO.macs, TRIO.cables))
        node.module = "tests.macs.daemon"
        node.environ = {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{STAND_IN}{os.pathsep}{ROOT}",
        }
    try:
        cluster.start()
        cluster.wait_formed()
        cluster.wait_links()
        wait_until(
            lambda: all(len(rdma_edges(node)) == 6 for node in cluster.nodes),
            "six RDMA edges on every node",
        )
        yield cluster
    finally:
        cluster.end()


def rdma_edges(node: LiveNode) -> dict[tuple[str, str], tuple[str, str]]:
    """By the ids of both nodes, the interfaces at both ends."""
    return {
        (source, sink): (edge["sourceRdmaIface"], edge["sinkRdmaIface"])
        for source, sinks in node.state()["topology"]["connections"].items()
        for sink, edges in sinks.items()
        for edge in edges
        if "sourceRdmaIface" in edge
    }


def expected_devices(trio: LiveCluster, ranks: list[str]) -> list[list[str | None]]:
    """The matrix by the recorded cables, for nodes in this order."""
    names = [trio.of(node_id).name for node_id in ranks]

    def port(one: str, other: str) -> str | None:
        for cable in TRIO.cables:
            ends = {cable.one[0]: cable.one, cable.other[0]: cable.other}
            if one != other and {MACS[one].name, MACS[other].name} <= ends.keys():
                return f"rdma_{MACS[one].kind.ports[ends[MACS[one].name][1]]}"
        return None

    return [[port(one, other) for other in names] for one in names]


def ranks_of(instance: dict[str, Any]) -> list[str]:
    shards = instance["shardAssignments"]
    by_runner = {runner: node for node, runner in shards["nodeToRunner"].items()}
    return [by_runner[runner] for runner in shards["runnerToShard"]]


def test_every_node_shows_ports_switches_and_edges(trio: LiveCluster) -> None:
    state = trio.nodes[1].state()
    enabled = {"enabled": True, "interfacesPresent": True}
    assert state["nodeRdmaCtl"] == {node.node_id: enabled for node in trio.nodes}
    assert {len(one["interfaces"]) for one in state["nodeThunderbolt"].values()} == {3}
    identity = state["nodeIdentities"][trio.nodes[0].node_id]
    assert (identity["chipId"], identity["osVersion"]) == ("Apple M4 Pro", "26.2")
    memory = state["nodeMemory"][trio.nodes[0].node_id]
    assert memory["ramTotal"]["inBytes"] == 64 * 1024**3
    for node in trio.nodes[1:]:
        assert rdma_edges(node) == rdma_edges(trio.nodes[0])


def test_the_preview_has_plans_over_rdma(trio: LiveCluster) -> None:
    previews = trio.nodes[0].get(f"/instance/previews?model_id={TINY_MODEL_ID}")["previews"]
    plans = {
        len(one["instance"]["MlxJacclInstance"]["jacclDevices"]): one["instance"]
        for one in previews
        if one["instance_meta"] == "MlxJaccl" and "MlxJacclInstance" in (one["instance"] or {})
    }
    assert sorted(plans) == [2, 3]
    whole = plans[3]["MlxJacclInstance"]
    assert whole["jacclDevices"] == expected_devices(trio, ranks_of(whole))


def test_what_is_placed_over_rdma_gets_its_matrix_and_serves(trio: LiveCluster) -> None:
    node = trio.nodes[0]
    instance_id = trio.place(instance_meta="MlxJaccl", min_nodes=3)
    instance = node.state()["instances"][instance_id]["MlxJacclInstance"]
    ranks = ranks_of(instance)
    matrix = expected_devices(trio, ranks)
    assert instance["jacclDevices"] == matrix
    for rank, node_id in enumerate(ranks):
        told = json.loads((trio.of(node_id).home / "jaccl.json").read_text(encoding="utf-8"))
        assert (told["rank"], told["devices"]) == (rank, matrix)
        [(name, address)] = told["variables"].items()
        host = "0.0.0.0" if rank == 0 else "127.0.0.1"
        assert (name, address.rpartition(":")[0]) == ("MLX_JACCL_COORDINATOR", host)
    question = {
        "model": TINY_MODEL_ID,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 4,
    }
    answer = node.post("/v1/chat/completions", question)
    assert answer.status == 200, answer.body
    assert answer.body["usage"]["completion_tokens"] > 0
    # JACCL would not notice that a rank is gone; the group does, and starts again as a whole.
    before = {one.name: one.runner_pids() for one in trio.nodes}
    os.kill(before["kite2"][0], signal.SIGKILL)
    wait_until(
        lambda: all(one.runner_pids() not in ([], before[one.name]) for one in trio.nodes),
        "new runners on all nodes",
    )
    trio.wait_serving(instance_id)
    assert node.post("/v1/chat/completions", question).status == 200
    assert node.ask("DELETE", f"/instance/{instance_id}").status == 200
