"""The load of a node from the state alone: places, queues, drain, latency, failures, followers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from skulkd.requests.selection import card_of
from skulkd.swarm.capabilities import capability_block, probe_machine
from skulkd.swarm.catalog import cluster_agents, slugs_of
from skulkd.swarm.drain import Drain
from skulkd.swarm.node_config import NodeConfig
from skulkd.swarm.node_load import LoadFacts, LoadMeter, Slots, node_load, total_load
from skulkd.swarm.telemetry import Counters, Machine, hardware_pressure
from skulkd.wire.ids import CommandId, NodeId, TaskId
from skulkd.wire.load import NodeLoad
from skulkd.wire.machine import AcceleratorMetrics, SystemPerformanceProfile
from skulkd.wire.runners import RunnerFailed, RunnerLoading, RunnerReady
from skulkd.wire.state import State
from skulkd.wire.tasks import InputMessage, TaskStatus, TextGeneration, TextGenerationTaskParams
from tests.daemon.builders import an_instance

NOW = datetime(2026, 6, 15, tzinfo=UTC)
FIRST, SECOND = NodeId("node-a"), NodeId("node-b")
FACTS = LoadFacts("kite1", None, "sha256:0")


def a_state(requests: int = 0, *, tools: int = 0, status: TaskStatus = "Running") -> State:
    """One instance over two nodes, the first of which leads."""
    instance = an_instance("inst-1", nodes=(FIRST, SECOND))
    runners = {runner: RunnerReady() for runner in instance.shard_assignments.runner_to_shard}
    tasks = {}
    for number in range(requests):
        params = TextGenerationTaskParams(
            model=instance.shard_assignments.model_id,
            input=[InputMessage(role="user", content="hi")],
            tools=[{"type": "function"}] if number < tools else None,
        )
        task_id = TaskId(f"task-{number}")
        tasks[task_id] = TextGeneration(
            task_id=task_id,
            instance_id=instance.instance_id,
            command_id=CommandId("c"),
            task_params=params,
            task_status=status,
        )
    return State(instances={instance.instance_id: instance}, runners=runners, tasks=tasks)


def load(state: State, node: NodeId = FIRST, facts: LoadFacts = FACTS) -> NodeLoad:
    return node_load(state, node, Slots(4), Counters(lambda: NOW), facts)


def test_requests_beyond_the_places_are_queued() -> None:
    found = load(a_state(6, tools=2))
    assert (found.max_concurrency, found.active_jobs, found.queued_jobs) == (4, 4, 2)
    assert found.free_slots == 0
    agentic, chat = found.classes.agentic, found.classes.chat
    assert (agentic.active_jobs, chat.active_jobs, chat.queued_jobs) == (2, 2, 2)


def test_a_node_that_only_follows_has_no_places_of_its_own() -> None:
    found = load(a_state(1), SECOND)
    assert (found.max_concurrency, found.active_jobs, found.free_slots) == (0, 0, 0)


def test_a_model_that_is_not_ready_has_no_places() -> None:
    state = a_state()
    loading = {runner: RunnerLoading(layers_loaded=1, total_layers=2) for runner in state.runners}
    assert load(state.model_copy(update={"runners": loading})).max_concurrency == 0


def test_a_draining_node_has_work_and_no_free_place() -> None:
    found = load(a_state(1), facts=LoadFacts("kite1", "2026-01-01T00:00:00Z", "sha256:0"))
    assert (found.draining, found.active_jobs, found.free_slots) == (True, 1, 0)
    total = total_load([found, load(a_state(1))])
    assert (total.nodes, total.draining_nodes, total.active_jobs, total.free_slots) == (2, 1, 2, 3)


@pytest.mark.parametrize("node", [FIRST, SECOND])
def test_a_drain_waits_for_every_rank(node: NodeId) -> None:
    state = a_state(2)
    meter = LoadMeter(node, lambda: state, Counters(lambda: NOW), lambda: 5.0)
    meter.notify()
    assert [work.id for work in meter.work()] == ["task-0", "task-1"]


def test_latency_and_failures_are_of_requests_that_ended() -> None:
    box, clock = [a_state(2)], [10.0]
    counters = Counters(lambda: NOW)
    meter = LoadMeter(FIRST, lambda: box[0], counters, lambda: clock[0])
    meter.notify()
    clock[0] = 12.5
    failed = (
        box[0]
        .tasks[TaskId("task-0")]
        .model_copy(update={"task_status": "Failed", "error_type": "runner_crashed"})
    )
    box[0] = box[0].model_copy(update={"tasks": {TaskId("task-0"): failed}})
    meter.notify()
    assert list(counters.latencies_ms) == [2500.0, 2500.0]
    assert [failure["code"] for failure in counters.failures] == ["runner_crashed"]
    meter.notify()
    assert len(counters.latencies_ms) == 2


def test_models_are_offered_with_their_health() -> None:
    state = a_state()
    [agent] = cluster_agents(state)
    assert agent.health == "healthy"
    broken = {runner: RunnerFailed(error_message="x") for runner in state.runners}
    [agent] = cluster_agents(state.model_copy(update={"runners": broken}))
    assert agent.health == "unreachable"
    loading = state.model_copy(update={"runners": {}})
    [agent] = cluster_agents(loading)
    assert agent.health == "degraded"
    [card] = [card_of(instance) for instance in state.instances.values()]
    [agent] = cluster_agents(loading, [card])
    assert agent.health == "healthy", "jobs wait for a model that they may load"


@pytest.mark.parametrize(
    ("vendor", "available"), [("cpu", False), ("unknown", False), ("nvidia", True), ("apple", True)]
)
def test_only_a_real_gpu_is_advertised(vendor: Any, available: bool) -> None:
    system = SystemPerformanceProfile(accelerator=AcceleratorMetrics(vendor=vendor, name="x"))
    config = NodeConfig(
        gateway_base_url="https://gw.example",
        node_id="shn_1",
        server_name="box",
        hardware_telemetry_enabled=True,
    )
    block = capability_block(
        "shn_1", probe_machine(config, frozenset(), system, None), "msn_t", NOW
    )
    gpu = block["public_projection"]["accelerators"]["gpu"]
    assert gpu["available"] is available
    assert gpu["count"] == int(available)
    assert ("gpu" in block["scheduler_match"]["capabilities"]) is available
    assert hardware_pressure(Machine(1, 0, 1, 1), block, NOW)["gpu"]["available"] is available


def test_slugs_are_short_and_never_the_same() -> None:
    assert slugs_of(["a/Model-X", "b/Model-Y"]) == {
        "a/Model-X": "model-x",
        "b/Model-Y": "model-y",
    }
    assert slugs_of(["a/Model", "b/Model"]) == {"a/Model": "a-model", "b/Model": "b-model"}


async def test_a_drain_is_kept_and_seen(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "drain.json"
    drain = Drain(file, lambda: NOW)
    seen: list[bool] = []
    drain.on_change(lambda: seen.append(drain.draining))
    assert await drain.change(draining=True)
    assert not await drain.change(draining=True)
    assert Drain(file).since == "2026-06-15T00:00:00.000000Z"
    assert await drain.change(draining=False)
    assert not Drain(file).draining
    assert seen == [True, False]
    file.write_text("{nonsense")
    assert Drain(file).draining  # a drain that cannot be read is still one
