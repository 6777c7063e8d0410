"""When silence becomes a failure: the rules as a table."""

from __future__ import annotations

from typing import Any

import pytest

from skulkd.runner.protocol import RunnerOptions
from skulkd.wire.ids import InstanceId, RunnerId, TaskId
from skulkd.wire.tasks import LoadModel, Shutdown, StartWarmup, Task
from skulkd.worker.deadlines import RunnerActivity, next_deadline
from skulkd.worker.options import RunnerTimeouts
from skulkd.worker.task_table import OpenTask
from tests.worker.rig import a_request

INSTANCE = InstanceId("inst")
REQUEST = a_request(INSTANCE, "x")
LOAD = LoadModel(task_id=TaskId("t"), instance_id=INSTANCE)
WARMUP = StartWarmup(task_id=TaskId("t"), instance_id=INSTANCE)
SHUTDOWN = Shutdown(task_id=TaskId("t"), instance_id=INSTANCE, runner_id=RunnerId("r"))


def standing(*tasks: OpenTask, **facts: Any) -> RunnerActivity:
    known = {"started_at": 0.0, "heard_at": 50.0, "reported": True, "failed_at": None}
    return RunnerActivity(**{**known, **facts}, open=tasks)


def sent(task: Task, at: float = 40.0, **facts: Any) -> OpenTask:
    return OpenTask(task, "Running", at, **{"acknowledged": True, **facts})


@pytest.mark.parametrize(
    ("situation", "at", "why"),
    [
        pytest.param(standing(), None, None, id="idle"),
        pytest.param(standing(reported=False), 120, "no report within 120 s", id="no report"),
        pytest.param(standing(failed_at=60.0), 65, "did not end", id="failed"),
        pytest.param(standing(sent(REQUEST)), 125, "no progress for 75 s", id="a request"),
        pytest.param(standing(sent(REQUEST), follows=True), None, None, id="rank 0 tells"),
        pytest.param(
            standing(sent(REQUEST, acknowledged=False), follows=True),
            115,
            "not acknowledged",
            id="a rank that does not answer",
        ),
        pytest.param(standing(sent(LOAD), follows=True), 365, "no progress", id="a rank loads"),
        pytest.param(
            standing(sent(REQUEST, 90.0)), 165, "no progress", id="sent after a long silence"
        ),
        pytest.param(
            standing(sent(REQUEST, acknowledged=False)), 115, "not acknowledged", id="no answer"
        ),
        pytest.param(
            standing(sent(REQUEST, cancelled_at=45.0)), 120, "not cancelled", id="cancelled"
        ),
        pytest.param(standing(sent(LOAD)), 365, "no progress for 315 s", id="loading"),
        pytest.param(
            standing(sent(LOAD, acknowledged=False)), 115, "LoadModel not ack", id="load unheard"
        ),
        pytest.param(standing(sent(WARMUP)), 355, "StartWarmup not done", id="warming up"),
        pytest.param(standing(sent(SHUTDOWN, acknowledged=False)), None, None, id="stopping"),
        pytest.param(
            standing(sent(REQUEST), sent(REQUEST, 45.0, acknowledged=False)),
            120,
            "not acknowledged",
            id="the first of two",
        ),
    ],
)
def test_each_kind_of_silence_has_its_limit(
    situation: RunnerActivity, at: float | None, why: str | None
) -> None:
    deadline = next_deadline(situation, RunnerOptions(), RunnerTimeouts())
    assert (None if deadline is None else deadline.at) == at
    assert why is None or (deadline is not None and why in deadline.why)
