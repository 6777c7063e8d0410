"""The worker of a node: makes its runners match the state, takes requests, shows diagnostics.

Its loop only waits for the next change or the next due time; everything slow runs in a task of
its own, with timeouts.
"""

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import assert_never

from skulkd.machine.memory import OVERRIDE, MemoryReader
from skulkd.peers import Peers
from skulkd.runner.protocol import GenerationOptions, TaskTrace
from skulkd.wire.cards import ModelCard
from skulkd.wire.cluster import NodeWarning
from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics, TaskCancelStatus
from skulkd.wire.events import Event
from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.machine import MemoryUsage
from skulkd.wire.state import State
from skulkd.wire.tasks import ServedTask
from skulkd.wire.topology import Topology
from skulkd.worker.forking import ForkingSpawn
from skulkd.worker.group_addresses import RankSecurity
from skulkd.worker.group_messages import FollowTask
from skulkd.worker.group_tasks import GroupTasks
from skulkd.worker.groups import Groups
from skulkd.worker.launch import Launcher, RunnerGpu
from skulkd.worker.model_files import LibraryFiles, LibraryLookup, ModelFiles
from skulkd.worker.options import StopSteps, WorkerOptions
from skulkd.worker.plan import (
    Action,
    AddRunner,
    CancelRequest,
    StopRunner,
    TakeStep,
    next_check,
    plan,
)
from skulkd.worker.process import Spawn, spawn_runner
from skulkd.worker.refusals import DuplicateTask, NoSuchInstance, NoSuchTask, NotReady, QueueFull
from skulkd.worker.slot import RunnerSlot, SlotDeps
from skulkd.worker.task_stream import (
    INSTANCE_DELETED,
    INSTANCE_LOST,
    NODE_STOPPING,
    TaskEnded,
    TaskStream,
)

# For drills: the memory that is found before loading, whatever the planner was given.
MEMORY_OVERRIDE = "SKULK_GUARD_MEMORY_MB"
_MAX_PAUSE_S = 1.0
# Changes within this time are handled together, so a flood of them costs one round.
_BATCH_S = 0.01
_DELETED = TaskEnded("Cancelled", INSTANCE_DELETED, "cancelled because the instance was deleted")
_MOVED = TaskEnded("Failed", INSTANCE_LOST, "the instance was moved to other nodes; ask again")
_STOPPED = TaskEnded("Failed", NODE_STOPPING, "the node stopped before it finished; ask again")


@dataclass(frozen=True, slots=True)
class WorkerDeps:
    """What a worker uses of its node."""

    library: LibraryLookup
    log_dir: Path
    peers: Peers
    security: RankSecurity | None = None
    """Protects the connections between ranks; required for ranks on other nodes."""
    files: ModelFiles | None = None
    """Fetches files; without it only models in the library are served."""
    memory: Callable[[], MemoryUsage] | None = None
    spawn: Spawn | None = None
    environ: Mapping[str, str] | None = None
    on_trace: Callable[[TaskTrace], None] = lambda _: None
    """Takes what a rank measured of a traced task."""
    unplaced: Callable[[], Collection[InstanceId]] = tuple
    """Instances that lost a node and wait for a new placement."""
    topology: Callable[[], Topology] = Topology


class Worker:
    """`run` it beside the node, `notify` it of changes of the state, `stop` it at the end."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        state: Callable[[], State],
        publish: Callable[[Event], None],
        deps: WorkerDeps,
        options: WorkerOptions | None = None,
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._options = options = options or WorkerOptions()
        # CUDA is initialised when MLX is imported and does not survive a fork.
        self._spawn = deps.spawn or (spawn_runner if options.cuda else ForkingSpawn())
        self._unplaced = deps.unplaced
        self._slots: dict[RunnerId, RunnerSlot] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._stopping = False
        self._submitting: Counter[InstanceId] = Counter()
        self._held_until: dict[InstanceId, float] = {}
        self._slot_deps = SlotDeps(
            node_id=node_id,
            options=options,
            launcher=_launcher(node_id, deps, options),
            spawn=self._spawn,
            security=deps.security,
            topology=deps.topology,
            publish=publish,
            on_trace=deps.on_trace,
            begin=self._begin,
            on_change=self._changed.set,
            advance=self._advance_now,
        )
        shared = (self._slots.values, self._begin, self._changed.set, options.group)
        self._groups = Groups(deps.peers, *shared)
        self._group_tasks = GroupTasks(deps.peers, *shared)

    # --- for the node ---

    async def run(self) -> None:
        """Make this machine match the state, until `stop`."""
        while not self._stopping:
            self._changed.clear()
            due = self._advance()
            await self._pause(due)

    def notify(self) -> None:
        """The state has changed."""
        self._changed.set()

    async def stop(self, steps: StopSteps | None = None) -> None:
        """End every runner; all processes are reaped when it returns, or even SIGKILL failed."""
        self._stopping = True
        self._changed.set()
        slots = tuple(self._slots.values())
        await asyncio.gather(
            self._groups.leave(),
            *(slot.stop(steps or self._options.stop, _STOPPED) for slot in slots),
        )
        self._publish_statuses(self._state())
        self._slots.clear()
        if isinstance(self._spawn, ForkingSpawn):
            await self._spawn.close()

    def restart(self, instance_id: InstanceId) -> None:
        """Start a new process, also after restarts were given up. Raises NoSuchInstance."""
        self._slot(instance_id).restart()
        self._changed.set()

    # --- for requests ---

    async def submit(self, task: ServedTask, generation: GenerationOptions) -> TaskStream:
        """Send a request to the runner of its instance. Raises WorkerRefusal."""
        slot = self._slot(task.instance_id)
        if slot.serving is None or self._stopping:
            raise NotReady(task.instance_id, slot.record.status)
        if self._held_until.get(task.instance_id, 0.0) > time.monotonic():
            raise NotReady(task.instance_id, slot.record.status, "it is being unloaded")
        if slot.tasks.find(task.task_id) is not None:
            raise DuplicateTask(task.task_id)
        self._check_queue(slot)
        request = FollowTask(
            instance_id=task.instance_id,
            attempt=slot.life.process_attempt or 0,
            task=task,
            generation=generation,
        )
        cancel = partial(self._cancel, task.task_id)
        stream = TaskStream(task.task_id, self._options.stream_bytes, cancel)
        self._submitting[task.instance_id] += 1
        try:
            await self._group_tasks.submit(slot, request, stream)
        finally:
            self._submitting[task.instance_id] -= 1
        return stream

    def hold_if_idle(self, instance_id: InstanceId, seconds: float) -> bool:
        """Accept no request for an instance for so long, unless it has one: False."""
        slots = [one for one in self._slots.values() if one.instance.instance_id == instance_id]
        if self._submitting[instance_id] or any(one.tasks.open_requests for one in slots):
            return False
        now = time.monotonic()
        self._held_until = {key: at for key, at in self._held_until.items() if at > now}
        self._held_until[instance_id] = now + seconds
        return True

    def _check_queue(self, slot: RunnerSlot) -> None:
        """Raises QueueFull."""
        running = self._options.runner.max_concurrent
        queued = max(0, slot.tasks.open_requests - running)
        if queued >= self._options.queue_limit and slot.tasks.open_requests >= running:
            after_s = math.ceil(slot.tasks.mean_s * (queued + 1) / running)
            raise QueueFull(slot.instance.instance_id, queued, min(max(after_s, 1), 60))

    def cancel(self, task_id: TaskId) -> TaskCancelStatus:
        """Cancel a request. Raises NoSuchTask."""
        status = self._cancel(task_id)
        if status is None:
            raise NoSuchTask(task_id)
        return status

    def _cancel(self, task_id: TaskId) -> TaskCancelStatus | None:
        for slot in self._slots.values():
            status = slot.cancel(task_id)
            if status == "cancel_requested" and slot.supervisor is not None:
                self._group_tasks.drop(slot, task_id)
            if status is not None:
                return status
        return None

    # --- for diagnostics ---

    def diagnostics(self) -> list[RunnerSupervisorDiagnostics]:
        """One record for each runner, with or without a process."""
        return [slot.diagnostics() for slot in self._slots.values()]

    def cards(self) -> list[ModelCard]:
        """Models whose files a runner uses, including runners that are being stopped."""
        slots = tuple(self._slots.values())
        return [slot.record.identity.shard.model_card for slot in slots]

    def runner_pids(self) -> frozenset[int]:
        """Runner processes that are alive."""
        records = [slot.record for slot in self._slots.values()]
        return frozenset(record.pid for record in records if record.alive and record.pid)

    def warnings(self) -> list[NodeWarning]:
        """Problems with how runners compute here."""
        reported = (slot.record.compute for slot in tuple(self._slots.values()))
        problems = {compute.problem for compute in reported if compute and compute.problem}
        return [slow_blas_warning(problem) for problem in sorted(problems)]

    # --- the loop ---

    def _advance(self) -> float | None:
        """Do everything that can be done now; when to do so again at the latest."""
        state = self._state()
        group_due = self._groups.advance()
        views = {
            runner_id: slot.view(leader_lost=self._groups.leader_lost(slot) is not None)
            for runner_id, slot in self._slots.items()
        }
        actions = plan(state, self._node_id, views, time.monotonic())
        for action in actions:
            self._carry_out(action)
        if any(isinstance(action, AddRunner) for action in actions):
            return self._advance()
        self._publish_statuses(state)
        due = (group_due, next_check(views))
        return min((at for at in due if at is not None), default=None)

    async def _pause(self, due: float | None) -> None:
        limit_s = _MAX_PAUSE_S
        if due is not None:
            limit_s = min(max(due - time.monotonic(), 0.0), limit_s)
        await asyncio.sleep(_BATCH_S)
        try:
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _advance_now(self) -> None:
        """When a runner ends: a client whose request failed must not find it still ready."""
        if not self._stopping:
            self._advance()
            self._changed.set()

    def _carry_out(self, action: Action) -> None:
        match action:
            case AddRunner(instance, runner_id):
                name = self._groups.node_name
                self._slots[runner_id] = RunnerSlot(self._slot_deps, instance, runner_id, name)
            case TakeStep(runner_id, step):
                slot = self._slots[runner_id]
                slot.take_step(step, self._groups.leader_lost(slot))
            case StopRunner(runner_id):
                slot = self._slots[runner_id]
                slot.life.stop()
                self._begin(self._remove(slot))
            case CancelRequest(_, task_id):
                self._cancel(task_id)
            case _ as unreachable:
                assert_never(unreachable)

    async def _remove(self, slot: RunnerSlot) -> None:
        """The instance is gone, or on other nodes: clusters that merge keep one copy."""
        lost = self._groups.lost_node_failure(slot)
        kept = {*self._state().instances, *self._unplaced()}
        ended = _MOVED if slot.instance.instance_id in kept else _DELETED
        await slot.stop(self._options.stop, lost or ended)
        self._slots.pop(slot.runner_id, None)

    def _publish_statuses(self, state: State) -> None:
        for slot in self._slots.values():
            slot.publish_status(state)

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def _slot(self, instance_id: InstanceId) -> RunnerSlot:
        for slot in self._slots.values():
            if slot.instance.instance_id == instance_id:
                return slot
        raise NoSuchInstance(instance_id)


def _launcher(node_id: NodeId, deps: WorkerDeps, options: WorkerOptions) -> Launcher:
    environ = os.environ if deps.environ is None else deps.environ
    return Launcher(
        node_id,
        deps.files or LibraryFiles(deps.library, options.timeouts.find_model_s),
        deps.memory or memory_reader(environ),
        RunnerGpu(environ) if options.cuda else None,
        deps.log_dir,
        options,
        environ,
    )


def memory_reader(environ: Mapping[str, str]) -> Callable[[], MemoryUsage]:
    """Blocking; reads anew at every call."""
    override = {OVERRIDE: environ[MEMORY_OVERRIDE]} if MEMORY_OVERRIDE in environ else {}
    read = MemoryReader(environ={**environ, **override})
    return lambda: read().usage


def slow_blas_warning(problem: str) -> NodeWarning:
    """`problem` is the runner's reason for not using the BLAS in `runtime.blas`."""
    return NodeWarning(
        message=f"runners multiply with MLX's slow reference BLAS: {problem}. Prompts are read"
        " many times slower than this machine could",
        remediation="install the [node] extra, which brings scipy-openblas32, or correct"
        " runtime.blas; then restart skulkd",
    )
