"""What being observed costs is measurable, and a shared step is written down once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from skulkd.runner.protocol import TaskTrace
from skulkd.runner.recording.tracing import MAX_STEPS, Tracer
from skulkd.store.imports.tiny_model import make_tiny_model
from skulkd.wire.ids import TaskId
from skulkd.wire.tracing import UNFINISHED
from tests.runner.test_phases import a_context

ROOT = Path(__file__).parents[2]


def test_the_measurement_runs_every_way_of_being_observed(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "bench.observed_decode", str(model), "6", "2", "2"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=True,
        timeout=600,
    )
    taken = json.loads(done.stdout)
    assert set(taken) == {"unobserved", "recorded", "traced"}
    assert all(len(rounds) == 2 for rounds in taken.values())
    assert all(wall > 0 for rounds in taken.values() for wall, _ in rounds)


def test_tasks_of_one_step_share_one_event() -> None:
    sent: list[TaskTrace] = []
    tracer = Tracer(a_context(), sent.append, lambda: 0.0)
    ids = [TaskId("one"), TaskId("two")]
    for task_id in ids:
        tracer.start(task_id)
    tracer.step([*ids, TaskId("not traced")], time.monotonic())
    for task_id in ids:
        tracer.finish(task_id, "finish")
    steps = [[e for e in trace.traces if e.name == "decode_step"] for trace in sent]
    assert [len(one) for one in steps] == [1, 1]
    assert steps[0][0] is steps[1][0]
    assert steps[0][0].attrs["batch_size"] == 3


def test_what_is_measured_is_sent_before_the_end_ever_more_seldom() -> None:
    sent: list[TaskTrace] = []
    clock = [0.0]
    tracer = Tracer(a_context(), sent.append, lambda: clock[0])
    tracer.start(TaskId("one"))
    for second in range(1, 101):
        clock[0] = float(second)
        tracer.step([TaskId("one")], 0.0)
    before = len(sent)
    assert 5 <= before <= 9
    assert all(trace.traces[-1].name == UNFINISHED for trace in sent)
    tracer.finish(TaskId("one"), "finish")
    names = [event.name for event in sent[-1].traces]
    assert (len(sent), names[-1]) == (before + 1, "finish")
    assert UNFINISHED not in names


def test_a_long_answer_is_traced_up_to_a_limit() -> None:
    sent: list[TaskTrace] = []
    tracer = Tracer(a_context(), sent.append, lambda: 0.0)
    tracer.start(TaskId("one"))
    for _ in range(MAX_STEPS + 5):
        tracer.step([TaskId("one")], 0.0)
    tracer.finish(TaskId("one"), "finish")
    assert sum(e.name == "decode_step" for e in sent[0].traces) == MAX_STEPS
