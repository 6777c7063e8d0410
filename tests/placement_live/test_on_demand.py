"""Models that requests load and idleness unloads, on two real daemons.

Each node may give 2 GiB; the large models need more than half of it.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.chatting import question, stream
from tests.cluster_live.cluster import LiveCluster, make_cluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until
from tests.placement_live.conftest import AVAILABLE_MB, BROKEN, add_large_model, break_model
from tests.swarm.gateway_thread import gateway_thread
from tests.swarm.test_live_gateway import NODE, a_job, run

LARGE = "local/large"
DEADLINE_S = 300.0
CONFIG = "models: {on_demand: true, idle_ttl: 1h}\n"


@pytest.fixture(scope="module")
def loaders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Only kite1 has the large models, so both have to be there."""
    environ = {"OVERRIDE_MEMORY_MB": AVAILABLE_MB}
    base = tmp_path_factory.mktemp("loaders")
    cluster = make_cluster(base, 2, config=CONFIG, environ=environ)
    for model in (LARGE, BROKEN):
        add_large_model(cluster.nodes[0].home, model)
    break_model(cluster.nodes[0].home)
    try:
        cluster.start()
        cluster.wait_formed()
        cluster.wait_links()
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(autouse=True)
def _nothing_stays(loaders: LiveCluster) -> Iterator[None]:
    yield
    for instance_id in loaders.nodes[0].state()["instances"]:
        loaders.nodes[0].ask("DELETE", f"/instance/{instance_id}")
    for node in loaders.nodes:
        wait_until(lambda n=node: n.state()["instances"] == {}, "an empty state", DEADLINE_S)
        wait_until(lambda n=node: n.runner_pids() == [], "its runners to go", DEADLINE_S)


def chat(node: LiveNode, model: str = TINY_MODEL_ID, **extra: Any) -> Any:
    body = {**question(4), "model": model, **extra}
    return node.ask("POST", "/v1/chat/completions", body, DEADLINE_S)


def ollama(node: LiveNode, model: str = TINY_MODEL_ID, **extra: Any) -> Any:
    return node.ask("POST", "/api/generate", {"model": model, "stream": False, **extra}, DEADLINE_S)


def events(node: LiveNode, kind: str, model: str = TINY_MODEL_ID) -> list[dict[str, Any]]:
    bodies = [line["event"][kind] for line in node.get(f"/v1/events?kind={kind}")]
    return [body for body in bodies if body["model_id"] == model]


def metric(node: LiveNode, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


def rows(node: LiveNode) -> list[dict[str, Any]]:
    return node.get("/v1/placements")["placements"]


def test_requests_of_two_nodes_at_once_load_a_model_once_and_are_answered(
    loaders: LiveCluster,
) -> None:
    before = len(events(loaders.nodes[0], "InstanceRequested"))
    replies: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=node: replies.append(chat(n)))
        for node in loaders.nodes * 2
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert [reply.status for reply in replies] == [200] * 4
    [row] = rows(loaders.nodes[1])
    assert row["record"]["onDemand"] == {"keepAliveSeconds": 3600.0}
    assert len(events(loaders.nodes[0], "InstanceRequested")) == before + 1
    shown = loaders.nodes[1].skulkctl("instances", "--columns", "model,unloads", "--no-headers")
    assert shown.out.split()[1] == "in", shown


def test_a_gateway_job_loads_its_model_unless_the_owner_hides_it(loaders: LiveCluster) -> None:
    node = loaders.nodes[1]
    with gateway_thread() as found:
        found.gateway.answers["bootstrap"] = {
            "node": {"node_id": NODE},
            "runtime_token": "msn_shared_token",
        }
        options = {"gateway": found.gateway.base_url, "block": "local/large"}
        setup = node.post("/v1/swarm/setup", {"apiKey": "k", "options": options})
        assert setup.status == 200, setup
        done = run(found, a_job("loads", max_tokens=4))
        assert done["status"] == "success", done
        assert len(rows(node)) == 1
        hidden = run(found, {**a_job("hidden", max_tokens=4), "source_agent_slug": "large"})
        assert "selected_agent_unavailable" in json.dumps(hidden), hidden
        assert len(rows(node)) == 1
        assert node.post("/v1/swarm/leave", {"force": True}).status == 200


def test_every_family_loads_and_a_stream_gets_keep_alives(loaders: LiveCluster) -> None:
    node = loaders.nodes[1]
    messages = [{"role": "user", "content": "hello"}]
    calls = {
        "/v1/completions": {"prompt": "hello", "max_tokens": 4},
        "/v1/messages": {"messages": messages, "max_tokens": 4},
        "/v1/responses": {"input": "hello", "max_output_tokens": 4},
        "/api/chat": {"messages": messages, "options": {"num_predict": 4}},
    }
    streamed = stream(node, 4)
    streamed.wait_end(DEADLINE_S)
    assert streamed.succeeded and streamed.lines[0][1] == ": keep-alive"
    assert ollama(node, keep_alive=0).body["done_reason"] == "unload"
    for path, body in calls.items():
        answer = node.ask("POST", path, {"model": TINY_MODEL_ID, **body}, DEADLINE_S)
        assert answer.status == 200, (path, answer)
        gone = ollama(node, keep_alive=0)
        assert (gone.status, gone.body["done_reason"]) == (200, "unload"), (path, gone)
        assert rows(node) == []


def test_keep_alive_of_a_request_decides_when_the_model_goes(loaders: LiveCluster) -> None:
    node = loaders.nodes[0]
    loaded = ollama(node, keep_alive=-1)
    assert (loaded.status, loaded.body["done_reason"]) == (200, "load")
    [row] = rows(node)
    assert row["record"]["onDemand"] == {"keepAliveSeconds": None}
    assert row["unloadsAt"] is None and row["inUse"] is False
    [running] = node.get("/api/ps")["models"]
    assert running["expires_at"] > "2090"

    assert ollama(node, prompt="hello", keep_alive="1s").status == 200
    wait_until(lambda: node.state()["instances"] == {}, "the model to be unloaded", DEADLINE_S)
    last = events(node, "InstanceUnloaded")[-1]
    assert last["cause"] == "idle" and last["idle_seconds"] >= 1

    refused = ollama(node, prompt="hello", keep_alive="soon")
    assert refused.status == 400 and "keep_alive must be a duration" in refused.body["error"]
    assert rows(node) == []


def test_what_an_operator_placed_stays(loaders: LiveCluster) -> None:
    node = loaders.nodes[0]
    assert chat(node, keep_alive=0).status == 200
    placed = node.skulkctl("place", TINY_MODEL_ID, "--ensure", "--wait")
    assert placed.code == 0, placed
    [row] = rows(node)
    assert "onDemand" not in row["record"]
    refused = ollama(node, keep_alive=0)
    assert refused.status == 400 and "skulkctl delete" in refused.body["error"]
    assert ollama(node, prompt="hello", keep_alive=0).status == 200
    assert [row["instanceId"]] == [one["instanceId"] for one in rows(node)]


def test_memory_goes_to_the_model_that_is_asked_for_unless_an_operator_holds_it(
    loaders: LiveCluster,
) -> None:
    """A model that cannot be loaded keeps what it was promised, and is not in use."""
    node = loaders.nodes[1]
    only = ("--only", "kite1")
    assert node.skulkctl("place", BROKEN, *only).code == 0
    refused = chat(node, LARGE)
    assert refused.status == 400, refused
    assert refused.body["error"]["refusal"]["kind"] == "DoesNotFit"
    [held] = rows(node)
    assert node.ask("DELETE", f"/instance/{held['instanceId']}").status == 200

    failed = chat(node, BROKEN)
    assert failed.status == 503 and "has failed" in failed.body["error"]["message"], failed
    answered = chat(node, LARGE)
    assert answered.status == 200, answered
    assert [row["modelId"] for row in rows(node)] == [LARGE]
    [unloaded] = events(node, "InstanceUnloaded", BROKEN)
    assert (unloaded["cause"], unloaded["wanted_by"]) == ("memory", LARGE)
    master = loaders.master()
    assert metric(master, 'skulk_on_demand_unloads_total{cause="memory"}') == 1


def test_an_unknown_model_is_refused_at_once(loaders: LiveCluster) -> None:
    refused = chat(loaders.nodes[0], "nobody/has-this")
    assert refused.status == 404
    assert "no node or store has its files" in refused.body["error"]["message"]
