"""Two real daemons: one stages from the other's store, serves, and clears up after itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.chatting import question, stream
from tests.cluster_live.cluster import LiveCluster, free_port, make_cluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import spawn_daemon, wait_until

DEADLINE_S = 300.0
LARGE_BYTES = 1 << 30


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[LiveCluster]:
    """kite1 hosts the store and has the model; kite2 has nothing."""
    base = tmp_path / "cluster"
    config = (
        f"model_store:\n  store_host: kite1\n  store_http_host: 127.0.0.1\n"
        f"  store_port: {free_port()}\n  store_path: {base}/kite1/models\n"
        "  staging: {staging_keep_recent_gb: 0}\n"
    )
    cluster = make_cluster(base, 0, config=config)
    one, two = cluster.add(), cluster.add(model=False)
    one.peers = [two.fabric]
    try:
        cluster.start()
        cluster.wait_formed()
        yield cluster
    finally:
        cluster.end()


def downloads_of(node: LiveNode, seen_by: LiveNode) -> dict[str, str]:
    """Model to what the state says of its files on a node."""
    found: dict[str, str] = {}
    for entry in seen_by.state()["downloads"].get(node.node_id, []):
        ((kind, fields),) = entry.items()
        ((_, shard),) = fields["shardMetadata"].items()
        found[shard["modelCard"]["modelId"]] = kind
    return found


def staged(node: LiveNode) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = node.get("/store/storage")["stagedModels"]
    return models


def test_a_node_stages_serves_keeps_and_clears(pair: LiveCluster) -> None:
    host, node = pair.nodes
    wait_until(
        lambda: downloads_of(node, host).get(TINY_MODEL_ID) == "DownloadPending",
        "the offer of the store in the state",
        DEADLINE_S,
    )
    assert [one["model_id"] for one in node.get("/store/registry")["entries"]] == [TINY_MODEL_ID]
    instance_id = pair.place(on=node, via=host)
    (copy,) = staged(node)
    assert (copy["modelId"], copy["inUse"]) == (TINY_MODEL_ID, True)
    assert downloads_of(node, host)[TINY_MODEL_ID] == "DownloadCompleted"

    refused = host.skulkctl("purge-staging", TINY_MODEL_ID, "--yes")
    assert refused.code == 4, refused.err
    assert f"on {node.name}: instance {instance_id[:8]}" in refused.err
    shown = json.loads(host.skulkctl("storage", "--all-nodes", "-o", "json").out)
    by_name = {item["name"]: item for item in shown["items"]}
    assert by_name["kite2"]["models"][0]["inUseBy"] == [f"instance {instance_id[:8]}", "a runner"]
    assert by_name["kite1"]["storePath"] == str(host.home / "models")

    assert host.ask("DELETE", f"/instance/{instance_id}").status == 200
    wait_until(lambda: not staged(node), "the eviction of what nobody uses", DEADLINE_S)
    assert (host.home / "models" / "skulk--tiny-llama" / "config.json").exists()


def add_large_file(host: LiveNode) -> int:
    """A file without content that takes a while to be read and copied; the model's bytes then."""
    directory = host.home / "models" / "skulk--tiny-llama"
    with (directory / "extra.bin").open("wb") as file:
        file.truncate(LARGE_BYTES)
    return sum(file.stat().st_size for file in directory.iterdir() if file.is_file())


def worst_finding(node: LiveNode) -> tuple[int, dict[str, Any]]:
    done = node.skulkctl("timeline", "--check", "--hang-after", "100ms", "-o", "json")
    return done.code, json.loads(done.out)["verdict"]["findings"][0]


def test_a_group_that_waits_for_files_is_waiting_and_never_hangs(pair: LiveCluster) -> None:
    """Also with a limit that any copy exceeds."""
    host = pair.nodes[0]
    total_bytes = add_large_file(host)
    placed = host.post("/place_instance", {"model_id": TINY_MODEL_ID, "min_nodes": 2})
    assert placed.status == 200, placed
    seen: list[dict[str, Any]] = []

    def is_ready() -> bool:
        code, found = worst_finding(host)
        if any(one["reason"] == "files" for one in found["waiting"]):
            assert (code, found["state"], found["rule"]) == (0, "WAITING", "FILES")
            assert host.skulkctl("doctor", "-q").code == 0
            seen.append(found)
        statuses = host.state()["runners"].values()
        return len(statuses) == 2 and all("RunnerReady" in status for status in statuses)

    wait_until(is_ready, "the model to be ready", DEADLINE_S)
    assert seen, "the copy was over before anybody looked"
    waits = [{one["rank"]: one for one in found["waiting"]} for found in seen]
    (late,) = {rank for found in waits for rank, one in found.items() if one["reason"] == "files"}
    assert all(found[1 - late]["reason"] == "ranks" for found in waits if 1 - late in found)
    copies = [found[late] for found in waits]
    # Until the store has listed the files, the total is that of the model's card.
    assert {one["totalBytes"] for one in copies if one["doneBytes"]} <= {total_bytes}
    done = [one["doneBytes"] for one in copies]
    assert done == sorted(done)


def test_a_request_does_not_wait_for_a_frozen_store_host(pair: LiveCluster) -> None:
    host, node = pair.nodes
    add_large_file(host)
    placed = node.post(
        "/place_instance", {"model_id": TINY_MODEL_ID, "excluded_nodes": [host.node_id]}
    )
    assert placed.status == 200, placed
    host.freeze()
    try:
        streamed = stream(node, 4)
        reply = node.post("/v1/chat/completions", question(4))
        streamed.wait_end()
    finally:
        host.thaw()
    assert (reply.status, reply.headers["retry-after"]) == (503, "5"), reply
    error = reply.body["error"]
    assert error["refusal"]["kind"] == "store_unreachable"
    assert f"waits for its files on {node.name}: store host {host.name}" in error["message"]
    assert streamed.error is not None
    assert streamed.error["message"] == error["message"]
    pair.wait_serving(placed.body["instance_id"])
    assert node.post("/v1/chat/completions", question(4)).status == 200


def test_a_staging_directory_around_the_store_is_refused_at_the_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    store = tmp_path / "staging" / "store"
    (home / "skulk.yaml").write_text(
        f"node: {{name: kite1}}\nmodel_store:\n  store_host: kite1\n  store_path: {store}\n"
        f"  staging: {{node_cache_path: {tmp_path}/staging}}\n"
    )
    (home / "skulk.yaml").chmod(0o600)
    daemon = spawn_daemon(home)
    try:
        assert daemon.wait_exit(DEADLINE_S) == 78
    finally:
        daemon.kill()
    assert f"staging {tmp_path}/staging contains the store {store}" in daemon.said()
