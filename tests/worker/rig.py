"""A worker with the real reducer around it, its runners real processes that die with the test."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import psutil

from skulkd.cluster.replica import Replica
from skulkd.placement.built import place
from skulkd.placement.candidates import PlacementCandidate
from skulkd.placement.fresh import make_fresh
from skulkd.placement.wish import Wish
from skulkd.runner.protocol import GenerationOptions, Output, PrefillProgress, RunnerOptions
from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard
from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics
from skulkd.wire.events import Event, InstanceCreated, InstanceDeleted
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, TaskId
from skulkd.wire.instances import Instance
from skulkd.wire.machine import MemoryUsage
from skulkd.wire.runners import RunnerFailed, RunnerReady, RunnerStatus
from skulkd.wire.tasks import InputMessage, TextGeneration, TextGenerationTaskParams
from skulkd.worker.options import CrashPolicy, RunnerTimeouts, StopSteps, WorkerOptions
from skulkd.worker.process import Spawn, spawn_runner
from skulkd.worker.task_stream import TaskEnded, TaskStream
from skulkd.worker.worker import Worker, WorkerDeps
from tests.peer_mesh import peer_mesh

NODE = NodeId("node-0123456789abcdef")
MODEL = ModelId("skulk/stand-in")
DEADLINE_S = 300.0
STAND_IN = Path(__file__).with_name("stand_in.py")
GIB = 1024**3
T = TypeVar("T")

# Short, so that tests are; generous where a slow machine must not make a difference.
QUICK = WorkerOptions(
    runner=RunnerOptions(eval_deadline_s=0.5, warmup_deadline_s=0.5, layer_deadline_s=30),
    timeouts=RunnerTimeouts(first_report_s=30, margin_s=0.5, exit_s=0.5, poll_s=0.1),
    stop=StopSteps(ask_s=0.5, term_s=0.5, kill_s=10),
    crashes=CrashPolicy(first_delay_s=0.01),
)
PATIENT = WorkerOptions(crashes=CrashPolicy(first_delay_s=0.01))


def a_card(model_id: ModelId = MODEL) -> ModelCard:
    return ModelCard(
        model_id=model_id,
        storage_size=Memory.of(1024**2),
        n_layers=8,
        hidden_size=64,
        supports_tensor=True,
        num_key_value_heads=4,
        tasks=["TextGeneration"],
        context_length=4096,
    )


def an_instance(card: ModelCard | None = None, node_id: NodeId = NODE) -> Instance:
    memory = MemoryUsage(
        ram_total=Memory.of(16 * GIB),
        ram_available=Memory.of(16 * GIB),
        swap_total=Memory(),
        swap_available=Memory(),
    )
    return place(Wish(card or a_card()), [PlacementCandidate(node_id, memory)], make_fresh(1))


def stand_in(boot: str = "") -> Spawn:
    """Starts runners that behave like this."""
    return partial(spawn_runner, command=(sys.executable, str(STAND_IN), "--boot", boot))


def stand_ins(file: Path, *boots: str) -> Spawn:
    """Each start behaves as the next of these; the last one again and again."""
    file.write_text("\n".join(boots))
    return partial(spawn_runner, command=(sys.executable, str(STAND_IN), "--boots", str(file)))


@dataclass
class MemoryLibrary:
    """A library in memory."""

    paths: Mapping[str, Path] = field(default_factory=lambda: {MODEL: Path("/models/stand-in")})
    problems: Mapping[str, str] = field(default_factory=dict)

    def find(self, model_id: str) -> Path | None:
        return self.paths.get(model_id)

    def problem(self, model_id: str) -> str | None:
        return self.problems.get(model_id)


@dataclass
class Rig:
    log_dir: Path
    worker: Worker = field(init=False)
    replica: Replica = field(default_factory=Replica)
    events: list[Event] = field(default_factory=list)

    def publish(self, event: Event) -> None:
        self.events.append(event)
        self.replica.apply(event, len(self.events) - 1)
        self.worker.notify()

    def place(self, card: ModelCard | None = None) -> InstanceId:
        instance = an_instance(card)
        self.publish(InstanceCreated(instance=instance))
        return instance.instance_id

    def delete(self, instance_id: InstanceId) -> None:
        self.publish(InstanceDeleted(instance_id=instance_id))

    def status(self, instance_id: InstanceId) -> RunnerStatus | None:
        """As the state has it."""
        instance = self.replica.state.instances.get(instance_id)
        if instance is None:
            return None
        (runner_id,) = instance.shard_assignments.runner_to_shard
        return self.replica.state.runners.get(runner_id)

    def record(self, instance_id: InstanceId) -> RunnerSupervisorDiagnostics:
        """As diagnostics have it."""
        (found,) = [r for r in self.worker.diagnostics() if r.instance_id == instance_id]
        return found

    async def reaches(self, instance_id: InstanceId, kind: type[T]) -> T:
        """The status of the runner once it is of this kind."""

        def found() -> T | None:
            status = self.status(instance_id)
            return status if isinstance(status, kind) else None

        return await eventually(found, f"{kind.__name__} of {instance_id}")

    async def fails(self, instance_id: InstanceId, words: str) -> str:
        """The whole reason, once the state names these words."""

        def found() -> str | None:
            status = self.status(instance_id)
            reason = status.error_message if isinstance(status, RunnerFailed) else None
            return reason if reason is not None and words in reason else None

        return await eventually(found, f"{instance_id} to fail with: {words}")

    async def idle(self, instance_id: InstanceId) -> None:
        """Until no task is open."""
        await eventually(
            lambda: not self.record(instance_id).in_progress_tasks, f"{instance_id} to be idle"
        )

    async def ask(self, instance_id: InstanceId, text: str, **params: Any) -> TaskStream:
        task = a_request(instance_id, text, **params)
        return await self.worker.submit(task, GenerationOptions())


def a_request(
    instance_id: InstanceId, text: str, *, model: ModelId = MODEL, **params: Any
) -> TextGeneration:
    return TextGeneration(
        task_id=TaskId(f"task-{uuid4()}"),
        instance_id=instance_id,
        command_id=CommandId(f"command-{uuid4()}"),
        task_params=TextGenerationTaskParams(
            model=model, input=[InputMessage(role="user", content=text)], **params
        ),
    )


@asynccontextmanager
async def running(
    log_dir: Path,
    spawn: Spawn | None,
    options: WorkerOptions = PATIENT,
    library: Any = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Rig]:
    """A worker at work; afterwards it is stopped, and so are its runners."""
    rig = Rig(log_dir)
    (peers,) = peer_mesh(NODE)
    rig.worker = Worker(
        node_id=NODE,
        state=lambda: rig.replica.state,
        publish=rig.publish,
        deps=WorkerDeps(library or MemoryLibrary(), log_dir, peers, spawn=spawn, environ=environ),
        options=options,
    )
    loop = asyncio.create_task(rig.worker.run())
    try:
        yield rig
    finally:
        await rig.worker.stop(StopSteps(ask_s=0.2, term_s=0.2, kill_s=10))
        await asyncio.wait({loop}, timeout=DEADLINE_S)
        assert loop.cancelled() or loop.exception() is None


async def ready(rig: Rig) -> InstanceId:
    """A new instance that serves."""
    instance_id = rig.place()
    await rig.reaches(instance_id, RunnerReady)
    return instance_id


async def eventually(
    condition: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S
) -> T:
    """The first true value of the condition."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + deadline_s
    while not (value := condition()):
        if loop.time() > ends:
            raise AssertionError(f"waited {deadline_s:g} s in vain for: {what}")
        await asyncio.sleep(0.01)
    return value


async def within(work: Any, deadline_s: float = DEADLINE_S) -> Any:
    async with asyncio.timeout(deadline_s):
        return await work


async def read_all(stream: TaskStream) -> tuple[str, TaskEnded]:
    """The text of an answer, and how it ended."""
    text = ""
    ended: TaskEnded | None = None
    async with asyncio.timeout(DEADLINE_S):
        async for item in stream:
            if isinstance(item, Output):
                text += "".join(part.text for part in item.items)
            elif isinstance(item, TaskEnded):
                assert ended is None
                ended = item
            else:
                assert isinstance(item, PrefillProgress)
    assert ended is not None
    return text, ended


async def first_text(stream: TaskStream) -> str:
    """The first text that comes; the stream stays open."""
    async with asyncio.timeout(DEADLINE_S):
        async for item in stream:
            if isinstance(item, Output):
                return "".join(part.text for part in item.items)
            assert not isinstance(item, TaskEnded), item
    raise AssertionError("the stream was closed")


def log_text(log_dir: Path) -> str:
    """What all runners have printed."""
    return "".join(path.read_text() for path in sorted(log_dir.glob("runner-*.log")))


def is_running(pid: int) -> bool:
    """Whether there is such a process that is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
