"""`/store/*` over HTTP: shapes, refusals, and purges over several nodes that spare what is used."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest

from skulkd.api.services import Services
from skulkd.cluster.health import node_health
from skulkd.store.client.connection import RetryPolicy
from skulkd.store.metrics import StorageCollector
from skulkd.store.staging.area import StagingArea
from skulkd.wire.base import Memory
from skulkd.wire.downloads import DownloadCompleted, DownloadFailed, DownloadPending
from skulkd.wire.events import InstanceCreated, InstanceDeleted, NodeDownloadProgress
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.machine import DiskUsage
from skulkd.wire.state import State
from skulkd.wire.storage import NodeStorage
from tests.api.in_process import serving, some_services
from tests.peer_mesh import MeshPeers, peer_mesh
from tests.storage.cards import card, instance, shard, stage, until

REFERENCE = json.loads(
    (Path(__file__).parents[1] / "data" / "openapi.json").read_text(encoding="utf-8")
)


def store_flags(home: Path, **more: object) -> dict[str, object]:
    return {
        "model_store.store_host": "elsewhere",
        "model_store.store_http_host": "127.0.0.1",
        "model_store.store_port": 9,
        "model_store.store_path": "/nowhere",
        "model_store.staging.node_cache_path": str(home / "staging"),
        **{f"model_store.{key}": value for key, value in more.items()},
    }


def a_node(home: Path, peers: MeshPeers | None = None, **more: object) -> Services:
    home.mkdir(parents=True, exist_ok=True)
    return some_services(home, store_flags(home, **more), peers)


def area_of(node: Services) -> StagingArea:
    assert node.store.config.area is not None
    return node.store.config.area


@contextlib.asynccontextmanager
async def asking(node: Services) -> AsyncIterator[Any]:
    """Ask a node: method, path, body; the status and the document."""
    async with serving(node) as url, aiohttp.ClientSession() as session:

        async def ask(method: str, path: str, body: object = None) -> tuple[int, Any]:
            async with session.request(method, url + path, json=body) as answer:
                return answer.status, await answer.json()

        yield ask


def check_shape(name: str, value: object) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": REFERENCE["components"]}
    jsonschema.Draft202012Validator(schema).validate(value)


async def test_storage_has_exactly_the_reference_shape(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    stage(area_of(node), "org/old", 10, at=100.0)
    stage(area_of(node), "org/new", 20, at=200.0)
    node.journal.append(InstanceCreated(instance=instance(card("org/old"), "node-test")))
    async with asking(node) as ask:
        status, found = await ask("GET", "/store/storage")
    assert status == 200
    check_shape("NodeStorageSummary", found)
    assert [(m["modelId"], m["inUse"]) for m in found["stagedModels"]] == [
        ("org/new", False),
        ("org/old", True),
    ]
    assert found["stagedModels"][0]["lastUsedEpochSeconds"] == 200.0
    assert found["stagedTotalBytes"] == sum(m["sizeBytes"] for m in found["stagedModels"])
    assert found["stagingRoot"] == str(tmp_path / "staging")
    assert found["diskTotalBytes"] >= found["diskFreeBytes"] > 0


async def test_storage_without_a_store_is_an_empty_picture(tmp_path: Path) -> None:
    async with asking(some_services(tmp_path)) as ask:
        status, found = await ask("GET", "/store/storage")
        assert (status, found["stagingRoot"], found["stagedModels"]) == (200, None, [])
        check_shape("NodeStorageSummary", found)
        for method, path in [
            ("GET", "/store/health"),
            ("GET", "/store/registry"),
            ("GET", "/store/downloads"),
            ("POST", "/store/models/a/b/download"),
            ("GET", "/store/models/a/b/download/status"),
            ("DELETE", "/store/models/a/b"),
        ]:
            status, found = await ask(method, path)
            assert (status, found["error"]["message"]) == (503, "Store not configured"), path


async def test_a_store_that_is_away_answers_as_the_reference_does(tmp_path: Path) -> None:
    async with asking(a_node(tmp_path)) as ask:
        status, found = await ask("GET", "/store/health")
        assert (status, found["error"]["message"]) == (503, "Store unreachable")
        assert await ask("GET", "/store/registry") == (200, {"entries": []})
        assert await ask("GET", "/store/downloads") == (200, {"downloads": []})
        status, found = await ask("POST", "/store/models/org%2Fm/download")
        assert (status, found["status"], sorted(found)) == (200, "error", ["error", "status"])
        status, found = await ask("DELETE", "/store/models/org/m")
        # Whether the store has the model is not known, so this is not a 404 as it is there.
        assert (status, found["error"]["refusal"]["kind"]) == (503, "store_unreachable")


async def test_a_purge_needs_a_body_and_knows_its_keys(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    stage(area_of(node), "org/m")
    async with asking(node) as ask:
        for path in ("/store/purge-staging", "/v1/cluster/purge-staging"):
            assert (await ask("POST", path))[0] == 422
            assert (await ask("POST", path, {"model": "x"}))[0] == 422
        status, found = await ask("POST", "/store/purge-staging", {"dryRun": True})
        assert (status, found["detail"][0]["type"]) == (422, "extra_forbidden")
        assert (await ask("POST", "/v1/cluster/purge-staging", {"nodes": ["node-none"]}))[0] == 404
    assert area_of(node).is_complete("org/m")


async def test_an_unknown_model_is_404_and_nothing_is_purged(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    stage(area_of(node), "org/m")
    async with asking(node) as ask:
        status, found = await ask("POST", "/v1/cluster/purge-staging", {"modelId": "org/typo"})
    assert status == 404
    assert "nothing was purged" in found["error"]["message"]
    assert area_of(node).is_complete("org/m")


async def test_a_purge_reaches_every_node_and_spares_what_is_used(tmp_path: Path) -> None:
    meshes = peer_mesh("node-a", "node-b", "node-c")
    nodes = [a_node(tmp_path / peers.node_id, peers) for peers in meshes]
    for node in nodes:
        stage(area_of(node), "org/idle", 1000)
        stage(area_of(node), "org/base", 2000)
        stage(area_of(node), "org/draft", 3000)
    used = instance(card("org/base", drafter="org/draft"), "node-b")
    nodes[1].journal.append(InstanceCreated(instance=used))
    meshes[2].leave()
    async with asking(nodes[0]) as ask:
        status, tried = await ask("POST", "/v1/cluster/purge-staging", {"dryRun": True})
        assert (status, tried["dryRun"]) == (200, True)
        assert all(len(area_of(node).copies()) == 3 for node in nodes)
        status, found = await ask("POST", "/v1/cluster/purge-staging", {})
    assert status == 200
    by_node = {result["nodeId"]: result for result in found["nodes"]}
    assert sorted(by_node) == ["node-a", "node-b"]
    assert [m["modelId"] for m in by_node["node-a"]["purged"]] != []
    assert area_of(nodes[0]).copies() == []
    assert {copy.model_id for copy in area_of(nodes[1]).copies()} == {"org/base", "org/draft"}
    reasons = {m["modelId"]: m["reasons"] for m in by_node["node-b"]["skipped"]}
    assert reasons["org/base"] == ["instance 1f2e3d4c"]
    assert reasons["org/draft"] == ["assistant drafter of org/base (instance 1f2e3d4c)"]
    assert by_node["node-b"]["freedBytes"] > 1000
    assert by_node["node-b"]["stagedBytesAfter"] < by_node["node-b"]["stagedBytesBefore"]
    assert [r["purged"] for r in tried["nodes"]] == [r["purged"] for r in found["nodes"]]
    assert len(area_of(nodes[2]).copies()) == 3


async def test_the_purge_of_the_reference_reaches_every_node_and_answers_its_shape(
    tmp_path: Path,
) -> None:
    meshes = peer_mesh("node-a", "node-b")
    nodes = [a_node(tmp_path / peers.node_id, peers) for peers in meshes]
    for node in nodes:
        stage(area_of(node), "org/one")
        stage(area_of(node), "org/two")
    async with asking(nodes[0]) as ask:
        status, found = await ask("POST", "/store/purge-staging", {"modelId": "org/one"})
    assert (status, sorted(found)) == (200, ["commandId", "message"])
    left = [[copy.model_id for copy in area_of(node).copies()] for node in nodes]
    assert left == [["org/two"], ["org/two"]]


async def test_a_purge_of_one_model_on_one_node(tmp_path: Path) -> None:
    meshes = peer_mesh("node-a", "node-b")
    nodes = [a_node(tmp_path / peers.node_id, peers) for peers in meshes]
    for node in nodes:
        stage(area_of(node), "org/one")
        stage(area_of(node), "org/two")
    async with asking(nodes[0]) as ask:
        body = {"modelId": "org/one", "nodes": ["node-b"]}
        status, found = await ask("POST", "/v1/cluster/purge-staging", body)
    assert (status, len(found["nodes"])) == (200, 1)
    assert found["message"].endswith(" for model org/one")
    assert len(area_of(nodes[0]).copies()) == 2
    assert [copy.model_id for copy in area_of(nodes[1]).copies()] == ["org/two"]


async def test_a_node_that_does_not_answer_is_a_row(tmp_path: Path) -> None:
    meshes = peer_mesh("node-a", "node-b")
    node = a_node(tmp_path / "a", meshes[0])
    async with asking(node) as ask:
        status, found = await ask("GET", "/store/storage/cluster")
        assert status == 200
        assert [(n["nodeId"], n["ok"]) for n in found["nodes"]] == [
            ("node-a", True),
            ("node-b", False),
        ]
        assert "node-b" in found["nodes"][1]["error"]
        _, purge = await ask("POST", "/v1/cluster/purge-staging", {})
    assert [(n["nodeId"], n["ok"]) for n in purge["nodes"]] == [("node-a", True), ("node-b", False)]
    assert "1 did not answer" in purge["message"]


async def test_the_cluster_view_tells_budget_and_next_eviction(tmp_path: Path) -> None:
    node = a_node(tmp_path, **{"staging.staging_keep_recent_gb": 100 / 1024**3})
    stage(area_of(node), "org/old", 50, at=1.0)
    stage(area_of(node), "org/new", 100, at=2.0)
    async with asking(node) as ask:
        _, found = await ask("GET", "/store/storage/cluster")
    storage = NodeStorage.model_validate(found["nodes"][0]["storage"])
    assert storage.keep_recent_bytes == 100
    assert storage.next_eviction == ["org/old"]
    assert storage.next_eviction_bytes == storage.staged_models[1].size_bytes


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ({"staging.staging_keep_recent_gb": 0}, {"org/used"}),
        ({"staging.staging_keep_recent_gb": 1}, {"org/used", "org/gone", "org/old"}),
        (
            {"staging.staging_keep_recent_gb": 0, "staging.cleanup_on_deactivate": False},
            {"org/used", "org/gone", "org/old"},
        ),
    ],
    ids=["strict", "within the budget", "switched off"],
)
async def test_eviction_by_budget(tmp_path: Path, more: dict[str, object], left: set[str]) -> None:
    node = a_node(tmp_path, **more)
    for model_id in ("org/used", "org/gone", "org/old"):
        stage(area_of(node), model_id)
    node.journal.append(InstanceCreated(instance=instance(card("org/used"), "node-test")))
    await node.store.evictor.evict("test")
    assert {copy.model_id for copy in area_of(node).copies()} == left


async def test_a_model_is_evicted_when_its_instance_goes_and_the_state_says_so(
    tmp_path: Path,
) -> None:
    node = a_node(tmp_path, **{"staging.staging_keep_recent_gb": 0})
    evictor, journal = node.store.evictor, node.journal
    evictor.start_grace_s = 0.0
    journal.on_change(node.store.notify)
    stage(area_of(node), "org/m")
    stage(area_of(node), "org/orphan")
    done = DownloadCompleted(
        node_id=NodeId("node-test"), shard_metadata=shard(card("org/m")), total=Memory.of(5)
    )
    journal.append(NodeDownloadProgress(download_progress=done))
    journal.append(InstanceCreated(instance=instance(card("org/m"), "node-test")))

    def staged() -> list[str]:
        return [copy.model_id for copy in area_of(node).copies()]

    def told() -> bool:
        return isinstance(node.replica.state.downloads[NodeId("node-test")][0], DownloadPending)

    task = asyncio.create_task(evictor.run())
    try:
        await until(lambda: staged() == ["org/m"], "the eviction at the start")
        assert not told()
        journal.append(InstanceDeleted(instance_id=InstanceId("1f2e3d4c-rest")))
        await until(lambda: staged() == [] and told(), "the eviction after the deactivation")
    finally:
        task.cancel()
        node.monitor.close()


async def test_many_copies_are_listed(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    for number in range(40):
        stage(area_of(node), f"org/m{number}", 1, at=float(number))
    found = await node.store.evictor.storage()
    assert [copy.model_id for copy in found.staged_models[:2]] == ["org/m39", "org/m38"]
    assert len(found.staged_models) == 40
    node.monitor.close()


# --- downloads by command, and figures ---


async def test_a_download_is_started_on_a_node_and_its_failure_is_in_the_state(
    tmp_path: Path,
) -> None:
    meshes = peer_mesh("node-a", "node-b")
    nodes = [a_node(tmp_path / peers.node_id, peers) for peers in meshes]
    nodes[1].store.staging.retry = RetryPolicy(attempts=1, first_pause_s=0.01, longest_pause_s=0.01)
    body = {
        "targetNodeId": "node-b",
        "shardMetadata": json.loads(shard(card("org/m")).model_dump_json()),
    }
    async with asking(nodes[0]) as ask:
        status, found = await ask("POST", "/download/start", body)
        assert (status, list(found)) == (200, ["commandId"])
        state = nodes[1].replica

        def failed() -> bool:
            entries = state.state.downloads.get(NodeId("node-b"), [])
            return [type(entry) for entry in entries] == [DownloadFailed]

        await until(failed, "the failure in the state")
        assert (await ask("POST", "/download/start", {**body, "targetNodeId": "x"}))[0] == 404
        assert (await ask("DELETE", "/download/node-b/org/m"))[0] == 200


async def test_a_copy_in_use_is_not_deleted_as_a_download(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    stage(area_of(node), "org/m")
    node.journal.append(InstanceCreated(instance=instance(card("org/m"), "node-test")))
    async with asking(node) as ask:
        status, found = await ask("DELETE", "/download/node-test/org/m")
    assert status == 409
    assert "instance 1f2e3d4c" in found["error"]["message"]
    assert area_of(node).is_complete("org/m")


async def test_metrics_tell_problems_and_figures(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    stage(area_of(node), "org/m", 1000)
    failed = DownloadFailed(
        node_id=NodeId("node-test"), shard_metadata=shard(card("org/x")), error_message="full"
    )
    node.journal.append(NodeDownloadProgress(download_progress=failed))
    summary = await node.store.evictor.storage()

    def view() -> State:
        health = node_health([failed], DiskUsage(total=Memory.of(9), available=Memory.of(1)), 0.0)
        return node.replica.state.model_copy(update={"node_health": {NodeId("node-test"): health}})

    collector = StorageCollector(NodeId("node-test"), node.store.evictor, view)
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }
    assert values["skulk_storage_problem", "download_failed"] == 1
    assert values["skulk_storage_problem", "disk_full"] == 1
    assert values["skulk_storage_problem", "disk_low"] == 0
    assert values["skulk_downloads", "failed"] == 1
    assert values[("skulk_staged_bytes",)] == summary.staged_total_bytes
    node.monitor.close()
