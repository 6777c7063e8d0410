"""What a runner tells its supervisor about itself and its tasks."""

from skulkd.runner.outbox import Outbox
from skulkd.runner.phases import Owner, PhaseRecorder
from skulkd.runner.protocol import Status, TaskAcknowledged, TaskStatus
from skulkd.wire import runners
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import (
    BaseRequestTask,
    BaseTask,
    ConnectToGroup,
    TextGeneration,
)


class Reports:
    """`status` is the last one told."""

    def __init__(self, outbox: Outbox, recorder: PhaseRecorder, world_size: int) -> None:
        self._outbox = outbox
        self._recorder = recorder
        self._world_size = world_size
        self.status: runners.RunnerStatus = runners.RunnerIdle()

    @property
    def running(self) -> bool:
        return isinstance(self.status, runners.RunnerRunning)

    def set_status(self, status: runners.RunnerStatus) -> None:
        self.status = status
        self._outbox.send(Status(status=status))

    def begin(self, task: BaseTask, status: runners.RunnerStatus) -> None:
        """A step of the runner's life starts."""
        self._outbox.send(TaskStatus(task_id=task.task_id, status="Running"))
        self.set_status(status)
        self.acknowledge(task)

    def acknowledge(self, task: BaseTask) -> None:
        self._outbox.send(TaskAcknowledged(task_id=task.task_id))
        self._recorder.point(
            "task_submission", "task_acknowledged", type(task).__name__, owner=owner_of(task)
        )

    def complete(self, task: BaseTask, status: runners.RunnerStatus) -> None:
        self._outbox.send(TaskStatus(task_id=task.task_id, status="Complete"))
        self.set_status(status)

    def accept(self, task: TextGeneration) -> None:
        """A request is taken in."""
        self._outbox.send(TaskStatus(task_id=task.task_id, status="Running"))
        if not self.running:
            self.set_status(runners.RunnerRunning())
        self.acknowledge(task)
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
        elif isinstance(task, BaseRequestTask) and not isinstance(task, TextGeneration):
            reason = f"this runner answers text, not {kind}"
        self._outbox.send(TaskAcknowledged(task_id=task.task_id))
        self.fail(task.task_id, reason)

    def fail(self, task_id: TaskId, reason: str) -> None:
        """A task that no retry will cure."""
        self._outbox.send(
            TaskStatus(
                task_id=task_id,
                status="Failed",
                error_type="invalid_request_error",
                error_message=reason,
            )
        )

    def rest(self) -> None:
        """There is nothing to do."""
        self.set_status(runners.RunnerReady())
        self._recorder.point("idle", "runner_ready", memory=True)


def owner_of(task: BaseTask) -> Owner:
    return Owner(task.task_id, task.command_id if isinstance(task, BaseRequestTask) else None)


def _summary(task: TextGeneration) -> str:
    """Counts and never content."""
    params = task.task_params
    messages = len(params.chat_template_messages or params.input)
    return f"{messages} messages, {len(params.tools or [])} tools, max {params.max_output_tokens}"
