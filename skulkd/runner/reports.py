"""What a runner reports to its supervisor about itself and its tasks."""

import logging
import os

from skulkd.runner.exits import ExitCode
from skulkd.runner.pipe import Outbox
from skulkd.runner.protocol import Status, TaskAcknowledged, TaskStatus
from skulkd.runner.recording.recorder import Owner, PhaseRecorder
from skulkd.runner.watchdog import Deadline
from skulkd.wire import runners
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import (
    BaseRequestTask,
    BaseTask,
    ConnectToGroup,
    ServedTask,
    TextEmbedding,
    TextGeneration,
)

_log = logging.getLogger("skulkd.runner")
FLUSH_S = 2.0
_SERVING = (runners.RunnerReady, runners.RunnerRunning)


class StatusReporter:
    """`status` is the last one sent."""

    def __init__(self, outbox: Outbox, recorder: PhaseRecorder, world_size: int) -> None:
        self._outbox = outbox
        self._recorder = recorder
        self._world_size = world_size
        self.status: runners.RunnerStatus = runners.RunnerIdle()
        self.ending = False
        """The end of this runner is reported already: lost ranks do not matter any more."""

    def set_status(self, status: runners.RunnerStatus) -> None:
        self.status = status
        self._outbox.send(Status(status=status))

    def begin(self, task: BaseTask, status: runners.RunnerStatus) -> None:
        """A task of the runner's lifecycle starts."""
        self._outbox.send(TaskStatus(task_id=task.task_id, status="Running"))
        self.set_status(status)
        self._acknowledge(task)

    def complete(self, task: BaseTask, status: runners.RunnerStatus) -> None:
        self._outbox.send(TaskStatus(task_id=task.task_id, status="Complete"))
        self.set_status(status)

    def accept(self, task: ServedTask) -> None:
        """A request is accepted."""
        self._outbox.send(TaskStatus(task_id=task.task_id, status="Running"))
        if not isinstance(self.status, runners.RunnerRunning):
            self.set_status(runners.RunnerRunning())
        self._acknowledge(task)
        if isinstance(task, TextEmbedding):
            inputs = len(task.task_params.input)
            self._recorder.point(
                "task_submission", "submit_text_embedding", owner=owner_of(task), inputs=inputs
            )
            return
        self._recorder.point(
            "task_submission",
            "submit_text_generation",
            _summary(task),
            owner=owner_of(task),
            images=len(task.task_params.images),
        )

    def refuse(self, task: BaseTask) -> None:
        """A task that this runner, or a runner in this state, cannot do."""
        kind = type(task).__name__
        reason = f"{kind} does not fit a runner that is {type(self.status).__name__}"
        if isinstance(task, ConnectToGroup) and self._world_size == 1:
            reason = "a runner of one rank has no group to connect to"
        elif isinstance(task, BaseRequestTask) and isinstance(self.status, _SERVING):
            reason = f"the model of this runner does not serve {kind}"
        self._outbox.send(TaskAcknowledged(task_id=task.task_id))
        self.fail(task.task_id, reason, "invalid_request_error")

    def fail(self, task_id: TaskId, reason: str, error_type: str) -> None:
        """`invalid_request_error` is for what no retry will cure."""
        self._outbox.send(
            TaskStatus(
                task_id=task_id, status="Failed", error_type=error_type, error_message=reason
            )
        )

    def cancel(self, task_id: TaskId) -> None:
        self._outbox.send(TaskStatus(task_id=task_id, status="Cancelled"))

    def ready(self) -> None:
        """No requests are open."""
        if not isinstance(self.status, runners.RunnerReady):
            self.set_status(runners.RunnerReady())
            self._recorder.point("idle", "runner_ready", memory=True)

    def crashed(self, reason: str) -> None:
        self.set_status(runners.RunnerFailed(error_message=reason))
        self._recorder.breadcrumb("runner_crashed", reason, phase="error")

    def rank_lost(self, rank: int, address: str) -> None:
        """MLX may never notice a lost rank, so this ends the process, from any thread."""
        if self.ending:
            return
        reason = f"rank {rank} at {address} is gone; the group must start again"
        _log.critical("%s; exit code %d", reason, ExitCode.GROUP_LOST)
        self._outbox.post(Status(status=runners.RunnerFailed(error_message=reason)))
        self._recorder.breadcrumb("group_lost", reason, lost_rank=rank)
        self._outbox.flush(FLUSH_S)
        os._exit(ExitCode.GROUP_LOST)

    def deadline_exceeded(self, deadline: Deadline) -> None:
        """From the watchdog, which ends the process after this."""
        event = "pipeline_eval_timeout" if deadline.code == ExitCode.EVAL_WEDGE else "deadline"
        reason = f"{deadline.what} made no progress for {deadline.limit_s:g} s. {deadline.advice}"
        self._outbox.post(Status(status=runners.RunnerFailed(error_message=reason)))
        waiting = self._recorder.waiting
        site = deadline.what if waiting is None else waiting.detail
        self._recorder.breadcrumb(event, site, limit_s=deadline.limit_s, exit_code=deadline.code)

    def _acknowledge(self, task: BaseTask) -> None:
        self._outbox.send(TaskAcknowledged(task_id=task.task_id))
        self._recorder.point(
            "task_submission", "task_acknowledged", type(task).__name__, owner=owner_of(task)
        )


def owner_of(task: BaseTask) -> Owner:
    return Owner(task.task_id, task.command_id if isinstance(task, BaseRequestTask) else None)


def _summary(task: TextGeneration) -> str:
    """Counts and never content."""
    params = task.task_params
    messages = len(params.chat_template_messages or params.input)
    return f"{messages} messages, {len(params.tools or [])} tools, max {params.max_output_tokens}"
