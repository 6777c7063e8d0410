"""Waiting for the rest of a burst: only when bursts are usual, and only for a short time."""

from __future__ import annotations

from pathlib import Path

import pytest

from skulkd.runner.exits import ExitCode
from skulkd.runner.generation.scheduler import ArrivalWindow
from skulkd.runner.pipe import Message, Outbox
from skulkd.runner.prompts.template_process import render_here
from skulkd.runner.protocol import Configure, RunTask
from skulkd.runner.session import RunnerSession
from skulkd.wire.ids import CommandId, ModelId, NodeId, RunnerId, TaskId
from skulkd.wire.tasks import (
    BaseTask,
    InputMessage,
    LoadModel,
    Shutdown,
    StartWarmup,
    TextGeneration,
    TextGenerationTaskParams,
)
from tests.runner.runner_process import INSTANCE, shard_of
from tests.runner.test_phases import Sink, a_recorder


@pytest.mark.parametrize(
    ("before", "here", "coming", "taken"),
    [
        ([], 1, 9, 0),  # nothing is known: nobody is waited for
        ([1, 1, 1], 1, 9, 0),
        ([4, 4], 1, 9, 3),
        ([4, 4], 3, 9, 1),
        ([4, 4], 4, 9, 0),
        ([4, 4], 6, 9, 0),
        ([4, 4], 1, 2, 2),  # one stays away
        ([4, 4], 0, 9, 0),  # what came was no request, or was refused
        ([1, 8], 1, 9, 0),  # one burst is no habit
        ([8, 1], 1, 9, 0),
        ([8, 3], 1, 9, 2),
    ],
)
def test_as_many_are_waited_for_as_always_came_lately(
    before: list[int], here: int, coming: int, taken: int
) -> None:
    window = ArrivalWindow()
    for size in before:
        window.record(size)
    accepted: list[float] = []

    def accept_next(within_s: float) -> bool:
        if len(accepted) == coming:
            return False
        accepted.append(within_s)
        return True

    window.wait(lambda: here + len(accepted) if here else 0, accept_next)
    assert len(accepted) == taken
    assert all(within_s > 0 for within_s in accepted)


class Script:
    """An inbox: what wakes the runner, what is there with it, what comes only to who waits."""

    def __init__(self, bursts: list[tuple[Message, list[Message], list[Message]]]) -> None:
        self._bursts = iter(bursts)
        self._together: list[Message] = []
        self._late: list[Message] = []

    def wait(self) -> Message:
        first, self._together, self._late = next(self._bursts)
        return first

    def arrived(self) -> list[Message]:
        here, self._together = self._together, []
        return here

    def wait_briefly(self, seconds: float) -> Message | None:
        return self._late.pop(0) if self._late else None


def test_after_two_bursts_a_runner_waits_for_the_rest_of_the_third(tiny: Path) -> None:
    sink = Sink()
    script = Script(
        [
            (a_life(LoadModel), [], []),
            (a_life(StartWarmup), [], []),
            (a_request("a"), [a_request("b")], []),
            (a_request("c"), [a_request("d")], []),
            (a_request("e"), [], [a_request("f")]),
            (a_life(Shutdown, runner_id=RunnerId("r")), [], []),
        ]
    )
    outbox = Outbox(lambda _: None, lambda: None)
    outbox.start()
    configure = Configure(
        node_id=NodeId("n"),
        runner_id=RunnerId("r"),
        instance_id=INSTANCE,
        model_path=str(tiny),
        shard=shard_of(tiny),
    )
    session = RunnerSession(configure, script, outbox, a_recorder(sink), render_here)  # type: ignore[arg-type]
    assert session.run() == ExitCode.CLEAN
    agreed = [p.entry.attrs for p in sink.offered if p.entry.event == "batch_tasks_agreed"]
    assert [attrs["agreed_count"] for attrs in agreed] == [2, 2, 2]


def a_life(kind: type[BaseTask], **more: object) -> Message:
    task = kind(task_id=TaskId(kind.__name__), instance_id=INSTANCE, **more)
    return RunTask.model_validate({"task": task})


def a_request(name: str) -> Message:
    return RunTask(
        task=TextGeneration(
            task_id=TaskId(name),
            instance_id=INSTANCE,
            command_id=CommandId(name),
            task_params=TextGenerationTaskParams(
                model=ModelId("m"),
                input=[InputMessage(role="user", content=name)],
                max_output_tokens=2,
            ),
        )
    )
