"""Two real daemons: one stages from the other's store, serves, and clears up after itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skulkd.store.tiny import TINY_MODEL_ID
from tests.cluster_live.cluster import LiveCluster, free_port, make_cluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import daemon_environ, spawn_daemon, wait_until

DEADLINE_S = 300.0


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


def ctl(node: LiveNode, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "skulkctl", *arguments, "--endpoint", f"127.0.0.1:{node.port}"],
        env=daemon_environ(node.home),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )


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

    refused = ctl(host, "purge-staging", TINY_MODEL_ID, "--yes")
    assert refused.returncode == 4, refused.stderr
    assert f"on {node.name}: instance {instance_id[:8]}" in refused.stderr
    shown = json.loads(ctl(host, "storage", "--all-nodes", "-o", "json").stdout)
    by_name = {item["name"]: item for item in shown["items"]}
    assert by_name["kite2"]["models"][0]["inUseBy"] == [f"instance {instance_id[:8]}", "a runner"]
    assert by_name["kite1"]["storePath"] == str(host.home / "models")

    assert host.ask("DELETE", f"/instance/{instance_id}").status == 200
    wait_until(lambda: not staged(node), "the eviction of what nobody uses", DEADLINE_S)
    assert (host.home / "models" / "skulk--tiny-llama" / "config.json").exists()


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
