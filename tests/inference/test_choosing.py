"""Which instance gets a request, and what is known of models whose disk hangs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from skulkd.cluster.replica import Replica
from skulkd.observe.event_log import EventLog
from skulkd.observe.timeline import side_by_side
from skulkd.requests.selection import best_first, failure_of
from skulkd.settings.paths import find_paths
from skulkd.store.library import LocalModel, ModelLibrary
from skulkd.store.local_models import LocalModels, ModelsUnavailable
from skulkd.wire.config import RuntimeSection
from skulkd.wire.events import TracingStateChanged
from skulkd.wire.ids import InstanceId, RunnerId, TaskId
from skulkd.wire.runners import RunnerFailed, RunnerLoading, RunnerReady, RunnerRunning
from skulkd.wire.state import State
from skulkd.worker import options as worker_settings
from skulkd.worker.options import worker_options
from tests.daemon.builders import A, B, a_supervisor, a_task, an_instance
from tests.local_journal import local_journal


def a_state(**runners: object) -> State:
    """Three instances; the keywords are the statuses of their runners."""
    statuses = {RunnerId(f"{name}-r0"): status for name, status in runners.items()}
    instances = [an_instance(name) for name in ("i1", "i2", "i3")]
    tasks = [a_task("t1", "i1"), a_task("t2", "i1"), a_task("t3", "i2")]
    return State(
        instances={one.instance_id: one for one in instances},
        runners=statuses,
        tasks={TaskId(task.task_id): task for task in tasks},
    )


def chosen(state: State) -> list[InstanceId]:
    return [one.instance_id for one in best_first(state, state.instances.values())]


def test_the_instance_with_least_to_do_comes_first() -> None:
    state = a_state(i1=RunnerRunning(), i2=RunnerReady(), i3=RunnerReady())
    assert chosen(state) == ["i3", "i2", "i1"]


def test_only_instances_that_serve_are_chosen() -> None:
    assert chosen(a_state(i1=RunnerReady(), i2=RunnerLoading())) == ["i1"]
    assert chosen(a_state()) == []


def test_an_instance_serves_when_all_its_ranks_do() -> None:
    two = an_instance("i1", (A, B))
    first, second = two.shard_assignments.runner_to_shard
    half = State(instances={two.instance_id: two}, runners={first: RunnerReady()})
    assert best_first(half, [two]) == []
    whole = half.model_copy(update={"runners": {first: RunnerReady(), second: RunnerRunning()}})
    assert best_first(whole, [two]) == [two]


def test_a_model_has_failed_when_all_its_instances_have() -> None:
    failed = RunnerFailed(error_message="cut off")
    instances = [an_instance(name) for name in ("i1", "i2")]
    assert failure_of(a_state(i1=failed, i2=RunnerLoading()), instances) is None
    assert failure_of(a_state(i1=failed, i2=failed), instances) == "cut off"
    assert failure_of(a_state(), instances) is None


async def test_whoever_waits_for_a_change_is_woken_once() -> None:
    journal = local_journal(EventLog(), Replica())
    told: list[int] = []
    journal.on_change(lambda: told.append(1))
    change = journal.next_change
    assert not change.is_set()
    journal.append(TracingStateChanged(enabled=True))
    assert change.is_set()
    assert not journal.next_change.is_set()
    assert told == [1]


class HangingLibrary(ModelLibrary):
    """A library on a disk that does not answer until it is told to."""

    def __init__(self, home: Path) -> None:
        super().__init__(find_paths({"SKULK_HOME": str(home), "HOME": str(home)}), {})
        self.answer = threading.Event()
        self.asked = 0

    def list(self) -> tuple[LocalModel, ...]:
        self.asked += 1
        assert self.answer.wait(300)
        return super().list()


async def test_a_disk_that_hangs_is_reported_and_costs_one_thread(tmp_path: Path) -> None:
    library = HangingLibrary(tmp_path)
    paths = find_paths({"SKULK_HOME": str(tmp_path), "HOME": str(tmp_path)})
    models = LocalModels(paths, library, deadline_s=0.05)
    try:
        for _ in range(3):
            with pytest.raises(ModelsUnavailable, match="did not answer") as unavailable:
                await models.list()
            assert unavailable.value.timed_out
        assert library.asked == 1
    finally:
        library.answer.set()
    patient = LocalModels(paths, library)
    assert await patient.list() == ()


def test_runners_and_entries_of_a_timeline_are_sorted() -> None:
    records = [a_supervisor(runner) for runner in ("b", "a")]
    runners, entries = side_by_side(records)
    assert [runner.runner_id for runner in runners] == ["a", "b"]
    assert entries == []


def test_settings_of_the_node_are_those_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_settings, "mlx_build", lambda: "cpu")
    runtime = RuntimeSection(
        blas="off",
        dequantize="on",
        max_concurrent_requests=3,
        queue=5,
        max_output_tokens=77,
        prefix_cache_mib=2,
        warmup_deadline_seconds=12.5,
        group_connect_deadline_seconds=7.5,
    )
    options = worker_options(runtime)
    runner = options.runner
    assert (runner.blas, options.dequantize, options.queue_limit) == ("off", "on", 5)
    assert (runner.max_concurrent, runner.default_max_tokens) == (3, 77)
    assert (runner.prefix_cache_bytes, runner.warmup_deadline_s) == (2 * 1024**2, 12.5)


@pytest.mark.parametrize("build", ["cuda", "metal"])
def test_weights_for_a_gpu_are_never_unpacked(monkeypatch: pytest.MonkeyPatch, build: str) -> None:
    monkeypatch.setattr(worker_settings, "mlx_build", lambda: build)
    assert worker_options(RuntimeSection(dequantize="on")).dequantize == "off"
