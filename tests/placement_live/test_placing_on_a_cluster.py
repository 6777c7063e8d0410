"""Placing on two real nodes: one decision at a time, by name, watched, and taken back midway."""

from __future__ import annotations

import re
import shutil
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.chatting import question, stream
from tests.cluster_live.cluster import LiveCluster, nodes_of
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until
from tests.placement_live.conftest import BROKEN, break_model

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


def test_what_is_placed_over_both_by_name_serves_and_goes(pair: LiveCluster) -> None:
    kite1, kite2 = pair.nodes
    done = kite2.skulkctl("place", "tiny", "--only", "kite1", "--only", "kite2",
                    "--min-nodes", "2", "--wait")  # fmt: skip
    assert done.code == 0, done
    assert done.out.startswith(f"ready {TINY_MODEL_ID}")
    assert "kite1 " in done.err
    wide = kite1.skulkctl("instances", "-o", "wide")
    assert "0-4/8,4-8/8" in wide.out
    probe = kite1.skulkctl("probe", TINY_MODEL_ID)
    assert probe.code == 0, probe
    gone = kite1.skulkctl("delete", TINY_MODEL_ID, "--yes", "--wait")
    assert gone.code == 0, gone


def test_a_plan_of_a_dry_run_is_what_is_placed(pair: LiveCluster) -> None:
    kite1, kite2 = pair.nodes
    wishes = [TINY_MODEL_ID, "--exclude", "kite1"]
    plan = kite1.skulkctl("place", *wishes, "--dry-run", "-q")
    assert plan.code == 0, plan
    done = kite2.skulkctl("place", *wishes, "--plan", plan.out.strip(), "--wait")
    assert done.code == 0, done
    [instance] = kite1.state()["instances"].values()
    assert nodes_of(instance) == {kite2.node_id}


def test_an_instance_that_is_deleted_while_it_loads_leaves_nothing(pair: LiveCluster) -> None:
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
    assert kite1.skulkctl("place", TINY_MODEL_ID, "--min-nodes", "2", "--wait").code == 0


def test_what_was_given_up_serves_after_an_operator_mended_and_restarted_it(
    pair: LiveCluster,
) -> None:
    kite1, kite2 = pair.nodes
    failed = kite1.skulkctl("place", BROKEN, "--min-nodes", "2", "--wait")
    assert failed.code == 1, failed
    [instance_id] = kite1.state()["instances"]
    short = instance_id[:8]
    assert f"hint: after fixing it, run:  skulkctl restart --instance {short} --wait" in failed.err
    for node in pair.nodes:
        models = node.home / "models"
        shutil.copy(models / "skulk--tiny-llama" / "config.json", models / "local--never-loads")
    try:
        done = kite2.skulkctl("restart", "--instance", short, "--wait")
        assert done.code == 0, done
        assert done.out.startswith(f"restarted {BROKEN} ({short}) on kite")
        assert kite1.skulkctl("probe", BROKEN).code == 0
        old = {pid for node in pair.nodes for pid in node.runner_pids()}
        asked = kite1.skulkctl("restart", "--instance", BROKEN)
        assert asked.code == 9, asked
        again = kite1.skulkctl("restart", "--instance", BROKEN, "--yes", "--wait")
        assert again.code == 0, again
        assert not old & {pid for node in pair.nodes for pid in node.runner_pids()}
    finally:
        for node in pair.nodes:
            break_model(node.home)
    assert kite1.skulkctl("restart", "--instance", "nothing").code == 3
    assert kite1.skulkctl("restart").code == 2
    assert kite1.post("/v1/instances/nothing/restart").status == 404


def test_a_node_that_came_back_with_another_id_is_excluded_by_its_name(pair: LiveCluster) -> None:
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
    done = kite1.skulkctl("place", TINY_MODEL_ID, "--exclude", "kite2", "--wait")
    assert done.code == 0, done
    [instance] = kite1.state()["instances"].values()
    assert nodes_of(instance) == {kite1.node_id}
    stale = kite1.skulkctl("place", TINY_MODEL_ID, "--exclude", old)
    assert stale.code == 3, stale


def test_a_prompt_goes_to_the_instance_that_has_read_its_beginning(pair: LiveCluster) -> None:
    kite1, kite2 = pair.nodes
    pair.place(on=kite1)
    pair.place(on=kite2)
    system = "".join(f"rule {number}: stay calm. " for number in range(60))

    def ask(text: str) -> int:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        reply = kite1.ask("POST", "/v1/chat/completions", question(2, messages=messages))
        assert reply.status == 200, reply
        return int(reply.body["usage"]["prompt_tokens_details"]["cached_tokens"])

    def open_tasks() -> int:
        return len(kite1.state()["tasks"])

    before = _routed(kite1)
    # With equal load the first instance is taken. It is busy, so this one goes to the other.
    busy = stream(kite1)
    busy.wait_tokens(1)
    assert ask("one") == 0
    busy.hang_up()
    wait_until(lambda: open_tasks() == 0, "the long answer to end", DEADLINE_S)
    cached = ask("two")
    assert cached > 100
    assert ask("three") >= cached
    after = _routed(kite1)
    assert {key: after[key] - before[key] for key in after} == {"hit": 2, "busy": 0, "miss": 1}


def _routed(node: LiveNode) -> dict[str, int]:
    name = "skulk_prefix_routing_total"
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = (re.match(rf'{name}{{result="(\w+)"}} (\S+)', line) for line in lines)
    return {match[1]: int(float(match[2])) for match in found if match}
