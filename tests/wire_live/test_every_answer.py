"""Every answer of a live two-node cluster is one that the reference's own types would parse.

Asked while the cluster is idle, with an instance over both nodes, and with a request running.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest

from skulkd.api.app import all_routes
from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.chatting import ENDLESS, question, stream
from tests.cluster_live.cluster import LiveCluster, free_port, make_cluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until
from tests.reference_schemas import REFERENCE, answer_schema, problem

MODEL = quote(TINY_MODEL_ID, safe="")
DEADLINE_S = 90.0
NOT_ASKED = {
    ("POST", "/admin/restart"): "ends the cluster; tests/daemon/test_stop.py",
    ("POST", "/download/start"): "tests/storage/test_live_storage.py",
    ("DELETE", "/download/{node_id}/{model_id}"): "tests/storage/test_live_storage.py",
    ("POST", "/store/models/{model_id}/download"): "needs a hub; tests/storage/test_storage_api.py",
    ("DELETE", "/store/models/{model_id}"): "would take the model away; the same",
    ("PUT", "/config"): "tests/api/test_config_api.py",
    ("POST", "/v1/messages"): "Anthropic's shapes; tests/clients",
    ("POST", "/v1/responses"): "OpenAI's shapes; tests/clients",
    ("POST", "/v1/embeddings"): "needs an embedding model; tests/clients",
}


@dataclass
class Asked:
    """A cluster, and which of the reference's operations were asked of it."""

    cluster: LiveCluster
    covered: set[tuple[str, str]] = field(default_factory=set)

    def check(self, node: LiveNode, method: str, path: str, body: Any = None, **parts: str) -> Any:
        """The body of a 200 that the reference would take. `path` is the reference's template."""
        url, _, query = path.partition("?")
        self.covered.add((method, url))
        actual = re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], path)
        reply = node.ask(method, actual, body)
        assert reply.status == 200, f"{method} {actual}: {reply}"
        wrong = problem(answer_schema(method, url), reply.body, snake_case=url == "/events")
        assert wrong is None, f"{method} {actual} ({query}): {wrong}"
        return reply.body

    def check_reads(self) -> None:
        """Whatever can be read at any time, from both nodes."""
        for node in self.cluster.alive:
            for path in READS:
                self.check(node, "GET", path)
            self.check(node, "GET", "/store/models/{model_id}/download/status", model_id=MODEL)
            for other in self.cluster.alive:
                self.check(node, "GET", "/v1/diagnostics/cluster/{node_id}", node_id=other.node_id)
        near, far = self.cluster.alive
        quick = {"includeProcessSamples": False}
        self.check(near, "POST", "/v1/diagnostics/node/capture", quick)
        path = "/v1/diagnostics/cluster/{node_id}/capture"
        self.check(near, "POST", path, quick, node_id=far.node_id)


READS = [
    "/node_id", "/node/identity", "/state", "/events", "/config", "/models", "/v1/models",
    f"/instance/previews?model_id={MODEL}", f"/instance/placement?model_id={MODEL}",
    "/store/health", "/store/registry", "/store/downloads", "/store/storage", "/v1/tracing",
    "/v1/traces", "/v1/traces/cluster", "/v1/diagnostics/node", "/v1/diagnostics/cluster",
    "/v1/diagnostics/cluster/timeline",
]  # fmt: skip


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """The first node hosts a store, so that the second one has to stage."""
    base = tmp_path_factory.mktemp("pair")
    config = (
        f"model_store:\n  store_host: kite1\n  store_http_host: 127.0.0.1\n"
        f"  store_port: {free_port()}\n  store_path: {base}/kite1/models\n"
        "  staging: {node_cache_path: ~/staging}\n"
    )
    cluster = make_cluster(base, 0, config=config)
    cluster.add(model=True)
    cluster.add(model=False)
    cluster.nodes[0].peers = [cluster.nodes[1].fabric]
    try:
        cluster.start()
        cluster.wait_formed()
        cluster.wait_links()
        yield Asked(cluster)
    finally:
        cluster.end()


def test_idle(asked: Asked) -> None:
    asked.check_reads()
    node = asked.cluster.alive[0]
    asked.check(node, "POST", "/models/add", {"model_id": TINY_MODEL_ID})
    asked.check(node, "DELETE", "/models/custom/{model_id}", model_id=MODEL)
    asked.check_reads()


def test_with_a_sharded_instance_and_with_a_running_request(asked: Asked) -> None:
    near, far = asked.cluster.alive
    asked.check(near, "PUT", "/v1/tracing", {"enabled": True})
    order = {"model_id": TINY_MODEL_ID, "min_nodes": 2}
    placed = asked.check(near, "POST", "/place_instance", order)
    # While files are copied, ranks connect, and the model loads.
    asked.check_reads()
    instance_id = placed["instance_id"]
    asked.cluster.wait_serving(instance_id)
    asked.check_reads()
    instance = asked.check(far, "GET", "/instance/{instance_id}", instance_id=instance_id)
    [content] = instance.values()
    assert len(content["shardAssignments"]["nodeToRunner"]) == 2
    _check_answers(asked, near)
    _check_running(asked, near, far)
    _check_traces(asked, near)
    asked.check(near, "DELETE", "/instance/{instance_id}", instance_id=instance_id)
    for node in (near, far):
        wait_until(lambda one=node: not one.runner_pids(), "the ranks to end", DEADLINE_S)
    asked.check(near, "POST", "/store/purge-staging", {})
    asked.check_reads()
    made = asked.check(near, "GET", f"/instance/placement?model_id={MODEL}")
    created = asked.check(near, "POST", "/instance", {"instance": made})
    assert created["instance_id"] in asked.check(near, "GET", "/state")["instances"]


def _check_answers(asked: Asked, node: LiveNode) -> None:
    asked.check(node, "POST", "/v1/chat/completions", question(4))
    measured = asked.check(node, "POST", "/bench/chat/completions", question(4))
    told = measured["generation_stats"]
    assert (told["serving_batches"], told["in_flight_at_admission"]) == (True, 1)


def _check_running(asked: Asked, near: LiveNode, far: LiveNode) -> None:
    running = stream(near, max_tokens=ENDLESS)
    running.wait_tokens(3)
    for node in (near, far):
        wait_until(lambda one=node: one.state()["tasks"], "the task in the state", DEADLINE_S)
    [[task_id, task]] = asked.check(far, "GET", "/state")["tasks"].items()
    assert task["TextGeneration"]["taskParams"]["image_hashes"] == {}
    created = [one["TaskCreated"] for one in near.get("/events") if "TaskCreated" in one]
    assert task_id in {one["task_id"] for one in created}
    for node, path in (
        (near, "/v1/diagnostics/node/runners/{runner_id}/cancel"),
        (near, "/v1/diagnostics/cluster/{node_id}/runners/{runner_id}/cancel"),
    ):
        [record] = node.get("/v1/diagnostics/node")["supervisorRunners"]
        parts = {"runner_id": record["runnerId"], "node_id": node.node_id}
        asked.check(node, "POST", path, {"taskId": task_id}, **parts)
    running.wait_end()
    beside = stream(near, max_tokens=ENDLESS)
    beside.wait_tokens(3)
    asked.check_reads()
    beside.hang_up()
    second = stream(near, max_tokens=ENDLESS)
    second.wait_tokens(3)
    command_id = second.command_id or ""
    asked.check(near, "POST", "/v1/cancel/{command_id}", command_id=command_id)
    second.wait_end()


def _check_traces(asked: Asked, node: LiveNode) -> None:
    wait_until(lambda: node.get("/v1/traces")["traces"], "a trace", DEADLINE_S)
    task_id = asked.check(node, "GET", "/v1/traces")["traces"][0]["taskId"]
    for base in ("/v1/traces", "/v1/traces/cluster"):
        for view in ("", "/stats", "/raw"):
            asked.check(node, "GET", f"{base}/{{task_id}}{view}", task_id=task_id)
    asked.check_reads()
    asked.check(node, "POST", "/v1/traces/delete", {"taskIds": [task_id, "nothing"]})


def test_no_operation_of_the_reference_was_forgotten(asked: Asked) -> None:
    """Runs last: what is served here and in the reference was asked, or has a reason not to."""
    served = {
        (route.method, re.sub(r"\{(\w+)(:[^}]*)?\}", r"{\1}", route.path)) for route in all_routes()
    }
    theirs = {(method.upper(), path) for path, ops in REFERENCE["paths"].items() for method in ops}
    assert served & theirs == asked.covered | NOT_ASKED.keys()
