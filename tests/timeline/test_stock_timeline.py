"""A stock node's timeline: downloads and tasks that no rank takes come from its other answers."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from skulkctl import verdict
from skulkctl.daemon.answers import Answer
from skulkctl.daemon.calls import Call
from skulkctl.daemon.driving import drive
from skulkctl.daemon.reading import read_model
from skulkctl.daemon.state import ClusterState
from skulkctl.daemon.stock_timeline import FirstSeen, complete
from skulkctl.daemon.timeline import timeline as ask_timeline
from skulkctl.verdict import State
from skulkd.wire.diagnostics import ClusterDiagnostics
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.ids import InstanceId, TaskId
from skulkd.wire.tasks import LoadModel
from skulkd.wire.timeline import Timeline
from tests.cli.builders import (
    a_cluster,
    a_request,
    a_supervised_runner,
    as_json,
    completed,
    downloads,
    failed,
    ongoing,
    pending,
)
from tests.timeline.builders import (
    INSTANCE,
    MODEL,
    NODES,
    NOW,
    TASK,
    assess,
    at,
    rank,
    read,
    step,
    timeline,
)

GIB = 1 << 30
NODE_DIAGNOSTICS = Path(__file__).parents[1] / "cli" / "data" / "diagnostics_node.json"
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


def sent(ago_s: float) -> dict[str, Any]:
    """Diagnostics of a cluster in which a runner has not acknowledged the task."""
    record = a_supervised_runner("r", "idle")
    record |= {"pendingTaskIds": [TASK], "lastTaskSentAt": at(ago_s)}
    bundle = {**json.loads(NODE_DIAGNOSTICS.read_text()), "supervisorRunners": [record]}
    node = {"nodeId": "node-0", "ok": True, "diagnostics": bundle}
    return {"generatedAt": at(0), "localNodeId": "node-0", "nodes": [node]}


def with_state(
    shown: dict[str, Any],
    state: ClusterState,
    diagnostics: dict[str, Any] | None = None,
    first_seen: FirstSeen | None = None,
) -> dict[str, Any]:
    """The timeline as it is completed from the other answers of the node."""
    told = None
    if diagnostics is not None:
        told = read_model(ClusterDiagnostics, diagnostics, pytest.fail)
    found = complete(read(shown), state, told, {} if first_seen is None else first_seen)
    return found.model_dump(mode="json")


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
    worst = assess(shown, names=NODES).worst
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
    assert assess(with_state(stock(idle()), state, None, {})).worst.state is State.OK


def test_a_task_that_a_rank_has_begun_is_taken_whatever_the_state_says() -> None:
    busy = rank(0, [step(1, "task_submission", "submit_text_generation")])
    shown = with_state(stock(busy), a_task(), None, {})
    assert shown["runners"][0]["pendingTaskIds"] == []


def test_a_task_that_nobody_sent_is_timed_from_when_it_was_first_seen() -> None:
    seen: dict[str, datetime] = {}
    first = with_state(stock(idle()), a_task(), None, seen)
    assert (assess(first).worst.state, seen) == (State.WAITING, {TASK: NOW})
    seen[TASK] = NOW.replace(minute=NOW.minute - 1)
    assert assess(with_state(stock(idle()), a_task(), None, seen)).worst.state is State.HANG
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
    assert assess(unloaded()).worst.state is State.HANG, "what its timeline alone says"
    worst = assess(with_state(unloaded(), entry, None, {}), names=NODES).worst
    assert (worst.state, worst.rule, worst.sentences) == (State.WAITING, "FILES", (told,))


def test_files_that_are_here_explain_nothing() -> None:
    there = downloading(completed("node-0", MODEL))
    assert assess(with_state(unloaded(), there, None, {})).worst.state is State.HANG


class Node:
    """Answers of a node by path, and what was asked for."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.paths: list[str] = []

    def timeline(self) -> Timeline:
        return drive(ask_timeline(), self._perform)

    def _perform(self, step: Call[Any]) -> Any:
        path = step.request.path
        self.paths.append(path)
        found = self._answers.get(path.rpartition("/")[2] if path != OURS else "ours")
        status = 404 if found is None else 200
        return step.read(Answer(step.request, "http://node", status, json.dumps(found).encode()))


OURS = "/v1/cluster/timeline"
STOCK = "/v1/diagnostics/cluster/timeline"


def test_our_own_daemon_is_asked_for_nothing_more() -> None:
    node = Node(ours=timeline(idle()))
    assert node.timeline() == read(timeline(idle()))
    assert node.paths == [OURS]


def test_diagnostics_are_asked_for_only_when_a_task_waits() -> None:
    quiet = Node(timeline=stock(idle()), state={"lastSeen": {}})
    quiet.timeline()
    assert quiet.paths == [OURS, STOCK, "/state"]
    tasks = {TASK: a_request(TASK, "c1", INSTANCE, MODEL, "Pending")}
    node = Node(timeline=stock(idle()), state={"lastSeen": {}, "tasks": tasks}, cluster=sent(65))
    shown = node.timeline()
    assert node.paths == [OURS, STOCK, "/state", "/v1/diagnostics/cluster"]
    assert verdict.assess(shown).worst.state is State.HANG


def test_without_its_state_a_stock_node_is_judged_by_its_timeline() -> None:
    node = Node(timeline=stock(idle()))
    assert node.timeline() == read(stock(idle()))


def test_a_phase_that_is_newer_than_this_version_is_shown_and_loses_no_rank() -> None:
    newer = timeline(rank(0, [step(1, "speculation", "draft_started")]))
    found = Node(ours=newer).timeline()
    assert [runner.phase for runner in found.runners] == ["speculation"]
    assert verdict.assess(found).worst.state is State.OK


def test_parts_that_nobody_can_read_are_left_out_at_once() -> None:
    """However many they are: a newer node may have them in every entry."""
    steps = [step(60 - n / 100, "decode_stream", "decode_token_progress", odd=None, n=n)
             for n in range(2000)]  # fmt: skip
    found = Node(ours=timeline(rank(0, steps))).timeline()
    assert [entry.attrs for entry in found.timeline] == [{"n": n} for n in range(2000)]
