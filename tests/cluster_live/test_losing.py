"""Nodes are killed and frozen: what must go on goes on, what is lost is named."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.cluster_live.agreement import losses
from tests.cluster_live.chatting import question, stream
from tests.cluster_live.cluster import LiveCluster, StartCluster, live_cluster, nodes_of
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

DEADLINE_S = 300.0


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path_factory.mktemp("losing") / "cluster", 3) as made:
        yield made


@pytest.fixture
def three(losing: LiveCluster) -> LiveCluster:
    """All nodes are here and nothing is placed."""
    dead = [node for node in losing.nodes if not node.alive]
    if dead:
        losing.start(*dead)
    losing.wait_formed(losing.nodes)
    for instance_id in losing.nodes[0].state()["instances"]:
        losing.nodes[0].ask("DELETE", f"/instance/{instance_id}")
    for node in losing.nodes:
        wait_until(lambda one=node: not one.runner_pids(), f"{node.name} to be idle", DEADLINE_S)
    return losing


def answers(node: LiveNode) -> bool:
    return node.post("/v1/chat/completions", question()).status == 200


def wait_gone(pid: int) -> None:
    def gone() -> bool:
        try:
            # A child of nobody that is left is a zombie until somebody reaps it.
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    wait_until(gone, f"the end of process {pid}", DEADLINE_S)


def test_a_killed_worker_is_named_and_its_model_placed_anew(three: LiveCluster) -> None:
    master = three.master()
    victim, asked = [node for node in three.nodes if node is not master]
    instance = three.place(on=victim)
    [runner] = victim.runner_pids()
    answer = stream(asked)
    answer.wait_tokens(3)
    victim.kill()
    answer.wait_end()
    assert answer.finished
    assert answer.error is not None
    assert answer.error["code"] == 500
    assert victim.name in answer.error["message"]
    assert "ask again" in answer.error["message"]
    wait_gone(runner)
    # Asking again is all a client has to do.
    wait_until(lambda: answers(asked), "the model to be there again", DEADLINE_S)
    three.wait_formed()
    for node in three.alive:
        instances = node.state()["instances"]
        assert instance not in instances or victim.node_id not in nodes_of(instances[instance])
        assert victim.node_id in losses(node)
    old_id = victim.node_id
    three.start(victim)
    three.wait_formed()
    assert victim.node_id != old_id
    assert {one["name"] for one in master.view()["nodes"]} == {"kite1", "kite2", "kite3"}


def test_a_killed_master_takes_nothing_with_it(three: LiveCluster) -> None:
    master = three.master()
    holder, asked = [node for node in three.nodes if node is not master]
    instance = three.place(on=holder)
    [runner] = holder.runner_pids()
    answer = stream(asked)
    answer.wait_tokens(3)
    master.kill()
    three.wait_formed()
    assert three.master() in (holder, asked)
    assert not answer.done, answer.end_text()
    answer.wait_more()
    assert answer.error is None
    assert holder.runner_pids() == [runner]
    three.wait_serving(instance)
    answer.hang_up()
    assert answers(asked)
    # Commands work under the new master.
    reply = asked.ask("DELETE", f"/instance/{instance}")
    assert reply.status == 200, reply


def test_a_frozen_master_is_deposed_and_finds_back(three: LiveCluster) -> None:
    frozen = three.master()
    others = [node for node in three.nodes if node is not frozen]
    three.place(on=others[0])
    [runner] = others[0].runner_pids()
    frozen.freeze()
    try:
        three.wait_formed(others)
        new = three.master(others)
        assert answers(others[1])
    finally:
        frozen.thaw()
    three.wait_formed(three.nodes)
    assert three.master(three.nodes) is new, "who comes back does not depose"
    assert others[0].runner_pids() == [runner]
    assert answers(frozen)


def test_a_cluster_that_was_switched_off_comes_back(cluster: StartCluster) -> None:
    two = cluster(2)
    two.place(on=two.nodes[1])
    runners = [pid for node in two.nodes for pid in node.runner_pids()]
    for node in two.nodes:
        os.kill(node.pid, signal.SIGKILL)
    for node in two.nodes:
        node.kill()
    for pid in runners:
        wait_gone(pid)
    two.start()
    two.wait_formed()
    [instance] = wait_until(
        lambda: list(two.nodes[0].state()["instances"]), "the placement", DEADLINE_S
    )
    two.wait_serving(instance)
    assert answers(two.nodes[0])
    placed = two.nodes[0].state()["instances"][instance]
    assert nodes_of(placed) == {two.nodes[1].node_id}, "on the same node, under its new id"
