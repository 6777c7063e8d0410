"""Three daemons are one cluster, and any of them answers for all. Nobody is harmed here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster_live.chatting import question, stream
from tests.cluster_live.cluster import LiveCluster, live_cluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

DEADLINE_S = 300.0


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path_factory.mktemp("three") / "cluster", 3) as made:
        yield made


@pytest.fixture(scope="module")
def model(three: LiveCluster) -> LiveNode:
    """The node that has the model; not the one that most tests ask."""
    three.place(on=three.nodes[1], via=three.nodes[2])
    return three.nodes[1]


def test_one_master_and_everybody_knows_everybody(three: LiveCluster) -> None:
    three.wait_formed()
    views = [node.view() for node in three.nodes]
    assert len({view["masterNodeId"] for view in views}) == 1
    for view in views:
        assert {one["name"] for one in view["nodes"]} == {"kite1", "kite2", "kite3"}
        assert sum(one["isMaster"] for one in view["nodes"]) == 1
        # All of them read the same clock, so this is the error of the measurement itself.
        for one in view["nodes"]:
            assert abs(one["clockSkewSeconds"]) <= one["clockSkewErrorSeconds"] + 0.05


def test_the_topology_is_what_daemons_measured(three: LiveCluster) -> None:
    three.wait_links()
    near, far = three.nodes[0], three.nodes[2]
    edges = near.state()["topology"]["connections"][near.node_id][far.node_id]
    assert f"/ip4/127.0.0.1/tcp/{far.port}" in [edge["sinkMultiaddr"]["address"] for edge in edges]

    def measured() -> Any:
        [member] = [one for one in near.view()["nodes"] if one["nodeId"] == far.node_id]
        return len({link["sink"] for link in member["links"]}) == 2

    wait_until(measured, "the latencies of the other node", DEADLINE_S)


def test_any_node_answers_for_all(three: LiveCluster) -> None:
    ids = {node.node_id for node in three.nodes}
    for node in three.nodes:
        bundles = node.get("/v1/diagnostics/cluster")["nodes"]
        assert {one["nodeId"] for one in bundles if one["ok"]} == ids
        assert bundles[0]["nodeId"] == node.node_id
        for other in three.nodes:
            bundle = node.get(f"/v1/diagnostics/cluster/{other.node_id}")
            assert bundle["runtime"]["friendlyName"] == other.name
            assert bundle["runtime"]["isMaster"] == (
                bundle["runtime"]["masterNodeId"] == other.node_id
            )
        assert set(node.state()["nodeMemory"]) == ids
    assert three.nodes[0].ask("GET", "/v1/diagnostics/cluster/nobody").status == 404
    assert three.nodes[0].post("/admin/restart?node_id=nobody").status == 404


def test_skulkctl_shows_the_cluster(three: LiveCluster, model: LiveNode) -> None:
    asked = three.nodes[0]
    listed = asked.skulkctl("nodes", "-o", "json")
    assert listed.code == 0, listed.err
    items = {item["name"]: item for item in json.loads(listed.out)["items"]}
    assert list(items) == ["kite1", "kite2", "kite3"]
    assert sorted(item["role"] for item in items.values()) == ["master", "worker", "worker"]
    assert all(item["health"] == "ok" or item["reasons"] for item in items.values())
    assert len({item["session"] for item in items.values()}) == 1
    status = json.loads(asked.skulkctl("status", "-o", "json").out)
    assert status["session"]["id"] == items["kite1"]["session"]
    assert items[status["master"]]["role"] == "master"
    assert asked.skulkctl("doctor", "--expect-nodes", "3", "-q").out.count("cluster-size") == 0
    wrong = asked.skulkctl("doctor", "--expect-nodes", "4", "-q")
    assert wrong.code == 7
    assert "cluster-size" in wrong.out
    bundle = json.loads(asked.skulkctl("diagnose", "kite2", "-o", "json").out)
    assert bundle["runtime"]["nodeId"] == model.node_id


def test_a_model_of_another_node_answers(three: LiveCluster, model: LiveNode) -> None:
    [pid] = model.runner_pids()
    texts = set()
    for node in three.nodes:
        reply = node.post("/v1/chat/completions", question())
        assert reply.status == 200, reply
        texts.add(reply.body["choices"][0]["message"]["content"])
        streamed = stream(node, 16)
        streamed.wait_end()
        assert streamed.finished, streamed.end_text()
        texts.add(streamed.text)
    assert len(texts) == 1, "the same greedy answer, whoever is asked"
    assert model.runner_pids() == [pid]
    assert all(node.runner_pids() == [] for node in three.nodes if node is not model)


def in_progress(node: LiveNode) -> list[dict[str, Any]]:
    records = node.get("/v1/diagnostics/node")["supervisorRunners"]
    return [task for record in records for task in record["inProgressTasks"]]


def statuses(node: LiveNode, task_id: str) -> list[str]:
    """What the event log says of a task, in order."""
    told = (one.get("TaskStatusUpdated") for one in node.get("/events"))
    return [one["task_status"] for one in told if one is not None and one["task_id"] == task_id]


def wait_idle(node: LiveNode) -> None:
    wait_until(lambda: not in_progress(node), f"{node.name} to have nothing to do", DEADLINE_S)


def test_a_client_that_leaves_frees_the_place_on_the_other_node(
    three: LiveCluster, model: LiveNode
) -> None:
    answer = stream(three.nodes[0])
    answer.wait_tokens(3)
    [task] = in_progress(model)
    answer.hang_up()
    wait_idle(model)
    # Not because all of it had been said meanwhile.
    wait_until(lambda: "Cancelled" in statuses(model, task["taskId"]), "its end", DEADLINE_S)


def test_any_node_cancels_a_request(three: LiveCluster, model: LiveNode) -> None:
    answer = stream(three.nodes[0])
    answer.wait_tokens(3)
    reply = three.nodes[2].post(f"/v1/cancel/{answer.command_id}")
    assert reply.status == 200, reply
    answer.wait_end()
    assert not answer.finished
    assert answer.error is None
    wait_idle(model)


def test_any_node_cancels_a_task_of_a_runner(three: LiveCluster, model: LiveNode) -> None:
    answer = stream(three.nodes[0])
    answer.wait_tokens(3)
    [record] = model.get("/v1/diagnostics/node")["supervisorRunners"]
    [task] = record["inProgressTasks"]
    path = f"/v1/diagnostics/cluster/{model.node_id}/runners/{record['runnerId']}/cancel"
    reply = three.nodes[2].post(path, {"taskId": task["taskId"]})
    assert (reply.status, reply.body["status"]) == (200, "cancel_requested")
    answer.wait_end()
    wait_idle(model)


def test_all_nodes_see_the_tasks_without_their_prompts(three: LiveCluster, model: LiveNode) -> None:
    answer = stream(three.nodes[0])
    answer.wait_tokens(3)
    for node in three.nodes:
        wait_until(lambda one=node: one.state()["tasks"], "the task in the state", DEADLINE_S)
        assert "hello" not in json.dumps(node.state()["tasks"])
    answer.hang_up()
    wait_idle(model)
    for node in three.nodes:
        wait_until(lambda one=node: not one.state()["tasks"], "the end of the task", DEADLINE_S)
