"""Placing on two real nodes: one decision at a time, by name, watched, and taken back midway."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from skulkd.store.tiny import TINY_MODEL_ID
from tests.cluster_live.cluster import LiveCluster, nodes_of
from tests.daemon_process import wait_until
from tests.placement_live.conftest import BROKEN, Skulkctl, break_model

DEADLINE_S = 300.0


@pytest.fixture(autouse=True)
def _nothing_stays(pair: LiveCluster) -> Iterator[None]:
    yield
    node = pair.alive[0]
    for instance_id in node.state()["instances"]:
        node.ask("DELETE", f"/instance/{instance_id}")
    for one in pair.alive:
        wait_until(lambda n=one: n.state()["instances"] == {}, "an empty state", DEADLINE_S)
        wait_until(lambda n=one: n.runner_pids() == [], "its runners to go", DEADLINE_S)


def test_orders_at_once_on_both_nodes_never_get_the_same_memory(pair: LiveCluster) -> None:
    def place(index: int) -> Any:
        return pair.nodes[index % 2].post("/place_instance", {"model_id": BROKEN})

    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(place, range(8)))
    assert sorted(reply.status for reply in replies) == [200, 200] + [400] * 6
    refused = [reply.body["error"]["refusal"] for reply in replies if reply.status == 400]
    assert {refusal["kind"] for refusal in refused} == {"DoesNotFit"}
    placed = {reply.body["instance_id"] for reply in replies if reply.status == 200}
    for node in pair.nodes:
        wait_until(
            lambda n=node: set(n.state()["instances"]) == placed, "both to agree", DEADLINE_S
        )
    used = [nodes_of(instance) for instance in pair.nodes[0].state()["instances"].values()]
    assert sorted(map(sorted, used)) == sorted([node.node_id] for node in pair.nodes)


def test_what_is_placed_over_both_by_name_serves_and_goes(
    pair: LiveCluster, skulkctl: Skulkctl
) -> None:
    kite1, kite2 = pair.nodes
    done = skulkctl(kite2, "place", "tiny", "--only", "kite1", "--only", "kite2",
                    "--min-nodes", "2", "--wait")  # fmt: skip
    assert done.code == 0, done
    assert done.out.startswith(f"ready {TINY_MODEL_ID}")
    assert "kite1 " in done.err
    wide = skulkctl(kite1, "instances", "-o", "wide")
    assert "0-4/8,4-8/8" in wide.out
    probe = skulkctl(kite1, "probe", TINY_MODEL_ID)
    assert probe.code == 0, probe
    gone = skulkctl(kite1, "delete", TINY_MODEL_ID, "--yes", "--wait")
    assert gone.code == 0, gone


def test_a_plan_of_a_dry_run_is_what_is_placed(pair: LiveCluster, skulkctl: Skulkctl) -> None:
    kite1, kite2 = pair.nodes
    wishes = [TINY_MODEL_ID, "--exclude", "kite1"]
    plan = skulkctl(kite1, "place", *wishes, "--dry-run", "-q")
    assert plan.code == 0, plan
    done = skulkctl(kite2, "place", *wishes, "--plan", plan.out.strip(), "--wait")
    assert done.code == 0, done
    [instance] = kite1.state()["instances"].values()
    assert nodes_of(instance) == {kite2.node_id}


def test_an_instance_that_is_deleted_while_it_loads_leaves_nothing(
    pair: LiveCluster, skulkctl: Skulkctl
) -> None:
    kite1, kite2 = pair.nodes
    for _ in range(2):
        placed = kite1.post("/place_instance", {"model_id": TINY_MODEL_ID, "min_nodes": 2})
        assert placed.status == 200, placed
        deleted = kite2.ask("DELETE", f"/instance/{placed.body['instance_id']}")
        assert deleted.status == 200, deleted
    for node in pair.nodes:
        wait_until(lambda n=node: n.state()["instances"] == {}, "it to be gone", DEADLINE_S)
        wait_until(lambda n=node: n.runner_pids() == [], "its runners to go", DEADLINE_S)
        wait_until(lambda n=node: n.state()["runners"] == {}, "their records to go", DEADLINE_S)
    assert skulkctl(kite1, "place", TINY_MODEL_ID, "--min-nodes", "2", "--wait").code == 0


def test_what_was_given_up_serves_after_an_operator_mended_and_restarted_it(
    pair: LiveCluster, skulkctl: Skulkctl
) -> None:
    kite1, kite2 = pair.nodes
    failed = skulkctl(kite1, "place", BROKEN, "--min-nodes", "2", "--wait")
    assert failed.code == 1, failed
    [instance_id] = kite1.state()["instances"]
    short = instance_id[:8]
    assert f"hint: after fixing it, run:  skulkctl restart --instance {short} --wait" in failed.err
    for node in pair.nodes:
        models = node.home / "models"
        shutil.copy(models / "skulk--tiny-llama" / "config.json", models / "local--never-loads")
    try:
        done = skulkctl(kite2, "restart", "--instance", short, "--wait")
        assert done.code == 0, done
        assert done.out.startswith(f"restarted {BROKEN} ({short}) on kite")
        assert skulkctl(kite1, "probe", BROKEN).code == 0
        old = {pid for node in pair.nodes for pid in node.runner_pids()}
        asked = skulkctl(kite1, "restart", "--instance", BROKEN)
        assert asked.code == 9, asked
        again = skulkctl(kite1, "restart", "--instance", BROKEN, "--yes", "--wait")
        assert again.code == 0, again
        assert not old & {pid for node in pair.nodes for pid in node.runner_pids()}
    finally:
        for node in pair.nodes:
            break_model(node.home)
    assert skulkctl(kite1, "restart", "--instance", "nothing").code == 3
    assert skulkctl(kite1, "restart").code == 2
    assert kite1.post("/v1/instances/nothing/restart").status == 404


def test_a_node_that_came_back_with_another_id_is_excluded_by_its_name(
    pair: LiveCluster, skulkctl: Skulkctl
) -> None:
    kite1, kite2 = pair.nodes
    old = kite2.node_id
    assert kite2.stop() == 0
    kite2.clean_up()
    for file in kite2.home.rglob("node_id*"):
        file.unlink()
    kite2.start()
    kite2.wait_ready()
    assert kite2.node_id != old
    pair.wait_formed()
    wait_until(
        lambda: old not in kite1.state()["topology"]["nodes"], "the old id to go", DEADLINE_S
    )
    done = skulkctl(kite1, "place", TINY_MODEL_ID, "--exclude", "kite2", "--wait")
    assert done.code == 0, done
    [instance] = kite1.state()["instances"].values()
    assert nodes_of(instance) == {kite1.node_id}
    stale = skulkctl(kite1, "place", TINY_MODEL_ID, "--exclude", old)
    assert stale.code == 3, stale
