"""Typed reasons for which the worker refuses a request. Must not know of HTTP.

WorkerRefusal
├── NoSuchInstance   this node has no runner of that instance
├── NoSuchTask       no runner here has that task, or recently had it
├── NotReady         the runner is starting, restarting, stopping or has failed
├── DuplicateTask    a request with that id is open
├── QueueFull        too many requests are queued
└── RequestTooLarge  the request does not fit a message to the runner
"""

from skulkd.wire.ids import InstanceId, TaskId
from skulkd.wire.runners import RunnerFailed, RunnerStatus


class WorkerRefusal(Exception):
    """`str()` is a sentence for the client."""


class NoSuchInstance(WorkerRefusal):
    def __init__(self, instance_id: InstanceId) -> None:
        self.instance_id = instance_id
        super().__init__(f"no runner of instance {instance_id} is on this node")


class NoSuchTask(WorkerRefusal):
    def __init__(self, task_id: TaskId) -> None:
        self.task_id = task_id
        super().__init__(f"no runner on this node knows task {task_id}")


class NotReady(WorkerRefusal):
    """`reason` is why the runner failed or what it lacks; None while it is starting."""

    def __init__(
        self, instance_id: InstanceId, status: RunnerStatus, reason: str | None = None
    ) -> None:
        self.instance_id = instance_id
        self.status_kind = type(status).__name__
        failed = status.error_message if isinstance(status, RunnerFailed) else None
        self.reason = reason or failed
        why = "" if self.reason is None else f": {self.reason}"
        super().__init__(f"instance {instance_id} is not ready ({self.status_kind}){why}")


class DuplicateTask(WorkerRefusal):
    def __init__(self, task_id: TaskId) -> None:
        self.task_id = task_id
        super().__init__(f"task {task_id} is open already")


class QueueFull(WorkerRefusal):
    def __init__(self, instance_id: InstanceId, waiting: int, retry_after_s: int) -> None:
        self.instance_id = instance_id
        self.waiting = waiting
        self.retry_after_s = retry_after_s
        super().__init__(
            f"{waiting} requests wait for instance {instance_id} already;"
            f" try again in {retry_after_s} s"
        )


class RequestTooLarge(WorkerRefusal):
    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the request is too large for a runner: {why}")
