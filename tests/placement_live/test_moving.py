"""Instances that cannot stay where they were placed, on real daemons: moved, bounded, and told.

Three nodes with one store. The guard of each finds less memory than the planner was told
(`SKULK_GUARD_MEMORY_MB`), and a staging directory that is no directory takes no files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.chatting import question
from tests.cluster_live.cluster import LiveCluster, free_port, make_cluster, nodes_of
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import NO_HUB, wait_until
from tests.placement_live.conftest import add_large_model

LARGE = "local/large"
NOT_IN_STORE = "mlx-community/gemma-3-1b-it-4bit"
DEADLINE_S = 300.0
# One node cannot hold the large model (1.3 GiB) when it comes to loading, half of it fits.
GUARD_MB = "900"


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """kite1 hosts the store and is chosen first; without it kite2 is, which has most memory."""
    base = tmp_path_factory.mktemp("trio")
    config = (
        f"model_store:\n  store_host: kite1\n  store_http_host: 127.0.0.1\n"
        f"  store_port: {free_port()}\n  store_path: {base}/kite1/models\n"
        "  staging: {staging_keep_recent_gb: 0, node_cache_path: ~/staging}\n"
    )
    cluster = make_cluster(base, 0, config=config)
    for number in range(3):
        memory = "4096" if number == 1 else "2048"
        environ = {"OVERRIDE_MEMORY_MB": memory, "SKULK_GUARD_MEMORY_MB": GUARD_MB}
        cluster.add(environ=environ, model=number == 0)
    cluster.nodes[0].peers = [cluster.nodes[1].fabric]
    add_large_model(cluster.nodes[0].home, LARGE)
    try:
        cluster.start()
        cluster.wait_formed()
        cluster.wait_links()
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(autouse=True)
def _nothing_stays(trio: LiveCluster) -> Iterator[None]:
    yield
    node = trio.alive[0]
    for instance_id in node.state()["instances"]:
        node.ask("DELETE", f"/instance/{instance_id}")
    for one in trio.alive:
        wait_until(lambda n=one: n.state()["instances"] == {}, "an empty state", DEADLINE_S)
        wait_until(lambda n=one: n.runner_pids() == [], "its runners to go", DEADLINE_S)


def told(node: LiveNode, kind: str, instance_id: str) -> list[dict[str, Any]]:
    """What `GET /v1/events` says of this kind about the instance, oldest first."""
    bodies = [line["event"][kind] for line in node.get(f"/v1/events?kind={kind}")]
    return [body for body in bodies if body["instance_id"] == instance_id]


def names(trio: LiveCluster, ids: list[str]) -> list[str]:
    return sorted(trio.of(node_id).name for node_id in ids)


def block_staging(node: LiveNode) -> None:
    """No files can come to this node any more, and those it had are gone."""
    staging = node.home / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    staging.write_text("this is no directory", encoding="utf-8")


def unblock_staging(node: LiveNode) -> None:
    (node.home / "staging").unlink()


def test_a_model_too_large_for_the_guard_is_moved_one_node_wider_and_serves(
    trio: LiveCluster,
) -> None:
    kite1 = trio.nodes[0]
    done = kite1.skulkctl("place", LARGE, "--wait", "-o", "name")
    assert done.code == 0, done
    assert "note: moved kite1 -> " in done.err
    assert "(memory-guard, 1 of 3): kite1: " in done.err
    [instance_id] = kite1.state()["instances"]
    for node in trio.nodes:
        [move] = wait_until(
            lambda n=node: told(n, "InstanceMoved", instance_id), "the move", DEADLINE_S
        )
        assert (move["cause"], move["attempt"], move["most"]) == ("memory-guard", 1, 3)
        assert (move["from_nodes"], len(move["to_nodes"])) == ([kite1.node_id], 2)
        assert f"{LARGE} needs 1." in move["reason"]
        assert "usable are 0.88 GiB" in move["reason"]
    assert nodes_of(kite1.state()["instances"][instance_id]) == set(move["to_nodes"])
    wide = kite1.skulkctl("instances", "-o", "wide")
    assert "kite1 -> " in wide.out, wide
    assert "(memory-guard, 1 of 3)" in wide.out
    line = kite1.skulkctl("events", "--kind", "InstanceMoved", "-o", "wide").out
    assert f"{instance_id[:8]} {LARGE} kite1 -> " in line
    assert "(attempt 1 of 3)" in line
    reply = kite1.post("/v1/chat/completions", {**question(4), "model": LARGE})
    assert reply.status == 200, reply


def test_files_that_do_not_come_move_the_model_elsewhere_within_its_exclusions(
    trio: LiveCluster,
) -> None:
    kite1, kite2, kite3 = trio.nodes
    block_staging(kite2)
    try:
        done = kite3.skulkctl("place", TINY_MODEL_ID, "--exclude", "kite1", "--wait")
        assert done.code == 0, done
        assert "note: moved kite2 -> kite3 (staging-failed, 1 of 3): the files of" in done.err
        [instance_id] = kite1.state()["instances"]
        [move] = told(kite1, "InstanceMoved", instance_id)
        assert names(trio, move["from_nodes"] + move["to_nodes"]) == ["kite2", "kite3"]
        assert nodes_of(kite1.state()["instances"][instance_id]) == {kite3.node_id}
        [row] = kite1.get("/v1/placements")["placements"]
        assert row["record"]["excluded"] == {kite1.node_id: "kite1"}
    finally:
        unblock_staging(kite2)


def test_where_nothing_else_is_allowed_it_stays_and_says_so_at_once(trio: LiveCluster) -> None:
    kite1, kite2, _ = trio.nodes
    block_staging(kite2)
    try:
        done = kite1.skulkctl("place", TINY_MODEL_ID, "--only", "kite2", "--wait")
        assert done.code == 1, done
        assert "staging-failed" in done.err
        assert "not moved elsewhere: all candidates of at least 1 node(s) touch an" in done.err
        [instance_id] = kite1.state()["instances"]
        # One when the files do not come, one more when the node gives up after three tries.
        refused = told(kite1, "InstanceMoveRefused", instance_id)
        assert 1 <= len(refused) <= 2
        for refusal in refused:
            assert (refusal["refusal"], refusal["nodes"]) == ("AllExcluded", [kite2.node_id])
            assert (refusal["attempt"], refusal["most"]) == (1, 3)
        assert "not moved: all candidates" in kite1.skulkctl("instances", "-o", "wide").out
        assert told(kite1, "InstanceMoved", instance_id) == []
    finally:
        unblock_staging(kite2)


@pytest.mark.parametrize("where", [["--exclude", "kite1"], ["--only", "kite1"]])
def test_a_store_that_cannot_reach_the_hub_is_named_at_once_and_nothing_is_moved(
    trio: LiveCluster, where: list[str]
) -> None:
    """With kite1, the store's own host fails; without it, a node that asks the host."""
    kite1 = trio.nodes[0]
    done = kite1.skulkctl("place", NOT_IN_STORE, *where, "--wait")
    assert done.code == 1, done
    cause = f"cannot download {NOT_IN_STORE}: the hub at {NO_HUB} is unreachable"
    assert f"store-failed: the store host {cause}" in done.err
    [instance_id] = kite1.state()["instances"]
    assert told(kite1, "InstanceMoved", instance_id) == []
    assert told(kite1, "InstanceMoveRefused", instance_id) == []
    waited = kite1.skulkctl("wait", instance_id)
    assert waited.code == 1, waited
    assert f"the hub at {NO_HUB} is unreachable" in waited.err
