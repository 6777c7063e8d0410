"""What the API needs of the worker, so that tests of the API can do without runners."""

from __future__ import annotations

from typing import Protocol

from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.cluster import NodeWarning
from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics, TaskCancelStatus
from skulkd.wire.ids import InstanceId, TaskId
from skulkd.wire.tasks import TextGeneration
from skulkd.worker.task_stream import TaskStream


class Worker(Protocol):
    """Takes requests for the runners of this node."""

    async def submit(self, task: TextGeneration, generation: GenerationOptions) -> TaskStream: ...

    def cancel(self, task_id: TaskId) -> TaskCancelStatus: ...

    def restart(self, instance_id: InstanceId) -> None: ...

    def diagnostics(self) -> list[RunnerSupervisorDiagnostics]: ...

    def runner_pids(self) -> frozenset[int]: ...

    def warnings(self) -> list[NodeWarning]: ...
