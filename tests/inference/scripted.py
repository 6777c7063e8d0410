"""A node whose worker does what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp

from skulkd.api.services import Services, Timeouts
from skulkd.peers import Peers
from skulkd.requests.dispatch import DispatchDeps, WaitLimits
from skulkd.runner.protocol import GenerationOptions, Output, OutputItem
from skulkd.wire.chat import CompletionTokensDetails, PromptTokensDetails, Usage
from skulkd.wire.cluster import NodeWarning
from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics, TaskCancelStatus
from skulkd.wire.events import InstanceCreated, RunnerStatusUpdated
from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.runners import RunnerReady, RunnerStatus
from skulkd.wire.tasks import TextGeneration
from skulkd.worker.refusals import NoSuchTask
from skulkd.worker.task_stream import TaskEnded, TaskStream
from skulkd.worker.worker import Worker
from tests.api.in_process import serving, some_services
from tests.daemon.builders import MODEL, an_instance

NODE = NodeId("node-test")
USAGE = Usage(
    prompt_tokens=5,
    completion_tokens=2,
    total_tokens=7,
    prompt_tokens_details=PromptTokensDetails(),
    completion_tokens_details=CompletionTokensDetails(),
)
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}


@dataclass
class Taken:
    """A request that the worker was given."""

    task: TextGeneration
    options: GenerationOptions
    stream: TaskStream

    def say(self, *texts: str) -> None:
        for text in texts:
            items = [OutputItem(text=text, tokens=1)]
            self.stream.push(Output(task_id=self.task.task_id, items=items), len(text))

    def end(
        self, status: Any = "Complete", kind: str | None = None, why: str | None = None
    ) -> None:
        self.stream.end(TaskEnded(status, kind, why))


@dataclass
class ScriptedWorker:
    """Takes every request, unless there are refusals left."""

    refusals: list[Exception] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    cancelled: list[TaskId] = field(default_factory=list)
    answer_at_once: str | None = None

    async def submit(self, task: TextGeneration, generation: GenerationOptions) -> TaskStream:
        if self.refusals:
            raise self.refusals.pop(0)
        stream = TaskStream(task.task_id, 1024**2, lambda: self.cancelled.append(task.task_id))
        taken = Taken(task, generation, stream)
        self.taken.append(taken)
        if self.answer_at_once is not None:
            taken.say(self.answer_at_once)
            taken.end()
        return stream

    def answer_with_usage(self, number: int) -> None:
        """One token and its count, together, as a runner's last message has them."""
        taken = self.taken[number]
        items = [OutputItem(text="Hi", tokens=1, finish_reason="stop")]
        taken.stream.push(Output(task_id=taken.task.task_id, items=items, usage=USAGE), 1)
        taken.end()

    def cancel(self, task_id: TaskId) -> TaskCancelStatus:
        raise NoSuchTask(task_id)

    def hold_if_idle(self, _instance_id: InstanceId, _seconds: float) -> bool:
        return not self.taken

    def diagnostics(self) -> list[RunnerSupervisorDiagnostics]:
        return []

    def warnings(self) -> list[NodeWarning]:
        return []

    def runner_pids(self) -> frozenset[int]:
        return frozenset()


@dataclass
class Stage:
    """A served node, its worker, and a client."""

    node: Services
    worker: ScriptedWorker
    url: str
    client: aiohttp.ClientSession

    def report(self, status: RunnerStatus, name: str = "i1") -> None:
        event = RunnerStatusUpdated(runner_id=RunnerId(f"{name}-r0"), runner_status=status)
        self.node.journal.append(event)

    def place(self, name: str = "i1", nodes: tuple[NodeId, ...] = (NODE,)) -> None:
        self.node.journal.append(InstanceCreated(instance=an_instance(name, nodes)))

    def chat(self, **extra: Any) -> Any:
        return self.client.post(f"{self.url}/v1/chat/completions", json={**CHAT, **extra})


@contextlib.asynccontextmanager
async def stage(
    home: Path,
    *,
    timeouts: Timeouts | None = None,
    limits: WaitLimits | None = None,
    ready: bool = True,
    idle_limit_s: float = 20.0,
    peers: Peers | None = None,
    deps: DispatchDeps | None = None,
) -> AsyncIterator[Stage]:
    """One instance on this node, ready unless said otherwise."""
    worker = ScriptedWorker()
    node = some_services(
        home,
        peers=peers,
        worker=cast("Worker", worker),
        limits=limits,
        deps=deps,
        timeouts=timeouts,
    )
    async with serving(node, idle_limit_s=idle_limit_s) as url, aiohttp.ClientSession() as client:
        one = Stage(node, worker, url, client)
        one.place(nodes=(node.identity.node_id,))
        if ready:
            one.report(RunnerReady())
        yield one


def frames(text: str) -> list[str]:
    """Complete frames, without their ends."""
    return [frame for frame in text.split("\n\n") if frame]


def contents(text: str) -> str:
    """What the data frames say, put together."""
    bodies = [f.removeprefix("data: ") for f in frames(text) if f.startswith("data: {")]
    return "".join(
        choice["delta"]["content"] or ""
        for body in map(json.loads, bodies)
        for choice in body.get("choices", [])
    )


async def until(condition: Callable[[], Any], what: str) -> None:
    for _ in range(12000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"waited in vain for {what}")
