"""A stock node's timeline: downloads and tasks that no rank takes come from its other answers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from skulkctl.daemon.state import ClusterState
from skulkctl.stock_timeline import complete_timeline, with_state
from skulkctl.verdict import State, judge
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.ids import InstanceId, TaskId
from skulkd.wire.tasks import LoadModel
from tests.cli.builders import (
    a_cluster,
    a_request,
    as_json,
    completed,
    downloads,
    failed,
    ongoing,
    pending,
)
from tests.timeline.builders import INSTANCE, MODEL, NODES, NOW, TASK, at, rank, step, timeline

GIB = 1 << 30
OURS_ONLY = ("pendingTaskIds", "pendingSeconds", "live", "waiting")


def stock(*ranks: dict[str, Any]) -> dict[str, Any]:
    """A timeline in the reference's shape."""
    made = timeline(*ranks)
    for runner in made["runners"]:
        for key in OURS_ONLY:
            del runner[key]
    return made


def idle(status: str = "RunnerReady", number: int = 0) -> dict[str, Any]:
    return rank(number, [step(540, "idle", "runner_ready")], status=status, task=None)


def unloaded() -> dict[str, Any]:
    """A process that has been started and waits to be told to load."""
    created = [step(600, "created", "process_started")]
    return stock(rank(0, created, status="RunnerIdle", task=None))


def a_task(status: str = "Pending", instance_id: str = INSTANCE) -> ClusterState:
    return a_cluster(tasks={TASK: a_request(TASK, "c1", instance_id, MODEL, status)})


def sent(ago_s: float, task_id: str = TASK) -> dict[str, Any]:
    record = {"runnerId": "r", "pendingTaskIds": [task_id], "lastTaskSentAt": at(ago_s)}
    return {"nodes": [{"nodeId": "node-0", "diagnostics": {"supervisorRunners": [record]}}]}


def downloading(download: DownloadProgress) -> ClusterState:
    return a_cluster(downloads=downloads(**{"node-0": download}))


LOADING = LoadModel(task_id=TaskId(TASK), task_status="Pending", instance_id=InstanceId(INSTANCE))


@pytest.mark.parametrize("status", ["RunnerReady", "RunnerRunning"])
@pytest.mark.parametrize(
    ("ago_s", "state"), [(1.0, State.OK), (6.0, State.WAITING), (65.0, State.HANG)]
)
def test_a_task_that_a_stopped_runner_does_not_take_is_not_called_ok(
    status: str, ago_s: float, state: State
) -> None:
    shown = with_state(stock(idle(status)), a_task(), sent(ago_s), {})
    worst = judge(shown, names=NODES).worst
    assert worst.state is state


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(a_task("Running"), id="taken"),
        pytest.param(a_task(instance_id="another"), id="of-another-instance"),
        pytest.param(a_cluster(tasks={TASK: as_json(LOADING)}), id="no-request"),
        pytest.param(a_cluster(), id="no-tasks"),
    ],
)
def test_what_is_no_untaken_request_is_not_told(state: ClusterState) -> None:
    assert judge(with_state(stock(idle()), state, None, {})).worst.state is State.OK


def test_a_task_that_a_rank_has_begun_is_taken_whatever_the_state_says() -> None:
    busy = rank(0, [step(1, "task_submission", "submit_text_generation")])
    shown = with_state(stock(busy), a_task(), None, {})
    assert shown["runners"][0]["pendingTaskIds"] == []  # type: ignore[index, call-overload]


def test_a_task_that_nobody_sent_is_timed_from_when_it_was_first_seen() -> None:
    seen: dict[str, datetime] = {}
    first = with_state(stock(idle()), a_task(), None, seen)
    assert (judge(first).worst.state, seen) == (State.WAITING, {TASK: NOW})
    seen[TASK] = NOW.replace(minute=NOW.minute - 1)
    assert judge(with_state(stock(idle()), a_task(), None, seen)).worst.state is State.HANG
    with_state(stock(idle()), a_cluster(), None, seen)
    assert seen == {}


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            downloading(ongoing("node-0", MODEL, 3 * GIB, 6 * GIB, float(80 << 20), 38_400)),
            "Rank 0 on kite1 waits for model files: 3.0GiB/6.0GiB, 80.0MiB/s, 38s left.",
        ),
        (
            downloading(pending("node-0", MODEL)),
            "Rank 0 on kite1 waits for model files: not begun.",
        ),
        (
            downloading(failed("node-0", MODEL, "disk full")),
            "Rank 0 on kite1 waits for model files: disk full.",
        ),
    ],
)
def test_a_download_on_a_stock_node_is_waiting_and_no_hang(entry: ClusterState, told: str) -> None:
    assert judge(unloaded()).worst.state is State.HANG, "what its timeline alone says"
    worst = judge(with_state(unloaded(), entry, None, {}), names=NODES).worst
    assert (worst.state, worst.rule, worst.says) == (State.WAITING, "FILES", (told,))


def test_files_that_are_here_explain_nothing() -> None:
    there = downloading(completed("node-0", MODEL))
    assert judge(with_state(unloaded(), there, None, {})).worst.state is State.HANG


class Asked:
    """Answers of a node, and what was asked for."""

    def __init__(self, state: ClusterState, diagnostics: object = None) -> None:
        self._state, self._diagnostics = state, diagnostics
        self.paths: list[str] = []

    def state(self) -> ClusterState:
        self.paths.append("/state")
        return self._state

    def get_optional(self, path: str) -> object:
        self.paths.append(path)
        return self._diagnostics


def completed_by(asked: Asked, given: dict[str, Any]) -> Any:
    return complete_timeline(asked, asked, given)  # type: ignore[arg-type]


def test_our_own_daemon_is_asked_for_nothing_more() -> None:
    asked = Asked(a_cluster())
    ours = timeline(idle())
    assert completed_by(asked, ours) is ours
    assert asked.paths == []


def test_diagnostics_are_asked_for_only_when_a_task_waits() -> None:
    asked = Asked(a_cluster())
    completed_by(asked, stock(idle()))
    assert asked.paths == ["/state"]
    asked = Asked(a_task(), sent(65))
    shown = completed_by(asked, stock(idle()))
    assert asked.paths == ["/state", "/v1/diagnostics/cluster"]
    assert judge(shown).worst.state is State.HANG
