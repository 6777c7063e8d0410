"""Two real daemons: a drain that both know and that outlives a kill, jobs that run once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.cluster import LiveCluster, live_cluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until
from tests.swarm.gateway_thread import GatewayThread, gateway_thread
from tests.swarm.test_live_gateway import a_job

DEADLINE_S = 300.0
NODE = "shn_live"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """One instance of the model on each node."""
    with live_cluster(tmp_path_factory.mktemp("two"), 2) as cluster:
        for node in cluster.nodes:
            cluster.place(on=node)
        yield cluster


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayThread]:
    with gateway_thread() as found:
        found.gateway.answers["bootstrap"] = {
            "node": {"node_id": NODE},
            "runtime_token": "msn_shared_token",
        }
        yield found


def load_of(asked: LiveNode, node: LiveNode) -> dict[str, Any]:
    [row] = [r for r in asked.get("/v1/load")["nodes"] if r["nodeId"] == node.node_id]
    assert row["ok"], row
    found: dict[str, Any] = row["load"]
    return found


def drains(asked: LiveNode, name: str) -> bool | None:
    found = [one["draining"] for one in asked.view()["nodes"] if one["name"] == name and one["ok"]]
    return bool(found and found[0])


def test_the_total_is_of_both_nodes(two: LiveCluster) -> None:
    a, b = two.nodes
    for asked in (a, b):
        load = asked.get("/v1/load")
        assert load["node"]["nodeId"] == asked.node_id
        assert (load["total"]["nodes"], load["total"]["maxConcurrency"]) == (2, 16)


def test_two_nodes_that_share_an_enrolment_run_a_job_once(
    two: LiveCluster, gateway: GatewayThread
) -> None:
    for node in two.nodes:
        body = {"apiKey": "k", "options": {"gateway": gateway.gateway.base_url}}
        setup = node.post("/v1/swarm/setup", body)
        assert setup.status == 200, setup
    wait_until(lambda: gateway.count("poll") >= 2, "both to poll", DEADLINE_S)
    for number in range(4):
        job = {**a_job(f"shared-{number}", max_tokens=4), "node_id": NODE}
        gateway.offer(job)
        gateway.offer(job)
        wait_until(lambda: not gateway.gateway.jobs, "both leases to be taken", DEADLINE_S)
        wait_until(lambda one=job: gateway.result_of(one["job_id"]), "the result", DEADLINE_S)
    # Whoever lost a claim has asked again by the time that it takes another job.
    for node in two.nodes:
        wait_until(
            lambda one=node: not one.get("/v1/swarm")["running_jobs"], "no job left", DEADLINE_S
        )
    paths = [call.path for call in gateway.gateway.calls]
    for number in range(4):
        assert sum(path.endswith(f"/shared-{number}/start") for path in paths) == 1
        assert sum(path.endswith(f"/shared-{number}/result") for path in paths) == 1
    for node in two.nodes:
        assert node.post("/v1/swarm/leave", {"force": True}).status == 200


def test_a_drain_is_known_everywhere_and_outlives_a_kill(two: LiveCluster) -> None:
    """Last: it kills a node."""
    a, b = two.nodes
    told = a.ask("PUT", "/v1/drain", {"draining": True, "nodeIds": [b.node_id]})
    assert [row["draining"] for row in told.body["nodes"]] == [True]
    for asked in (a, b):
        wait_until(lambda one=asked: drains(one, b.name), "everybody to know", DEADLINE_S)
        assert drains(asked, a.name) is False
    assert a.get("/v1/load")["total"]["drainingNodes"] == 1
    before = load_of(a, b)
    body = {
        "model": TINY_MODEL_ID,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 4,
    }
    served = _tasks_served(b)
    for asked in (a, b):
        for _ in range(3):
            assert asked.post("/v1/chat/completions", body).status == 200
    assert _tasks_served(b) == served, "requests went to a draining node"
    assert (before["freeSlots"], load_of(a, b)["freeSlots"]) == (0, 0)
    placed = a.post("/place_instance", {"model_id": TINY_MODEL_ID, "excluded_nodes": [a.node_id]})
    assert 400 <= placed.status < 500, placed
    assert "drain" in str(placed.body), placed
    b.kill()
    b.clean_up()
    two.start(b)
    two.wait_formed()
    for asked in (a, b):
        wait_until(lambda one=asked: drains(one, b.name), "it drains again", DEADLINE_S)
    b.ask("PUT", "/v1/drain", {"draining": False})
    wait_until(lambda: not drains(a, b.name), "it is back", DEADLINE_S)


def _tasks_served(node: LiveNode) -> int:
    records = node.get("/v1/diagnostics/node")["supervisorRunners"]
    return sum(int(record["completedTaskCount"]) for record in records)
