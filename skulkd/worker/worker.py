"""The worker of a node: carries out the plan, takes requests, tells what its runners do.

Its loop waits for nothing but the next change or the next due moment; everything slow runs
beside it in a task with limits.
"""

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import assert_never
from uuid import uuid4

from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.cards import ModelCard
from skulkd.wire.cluster import NodeWarning
from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics, TaskCancelStatus
from skulkd.wire.events import Event, RunnerStatusUpdated
from skulkd.wire.ids import InstanceId, NodeId, RunnerId, TaskId
from skulkd.wire.runners import RunnerShutdown
from skulkd.wire.state import State
from skulkd.wire.tasks import TextGeneration
from skulkd.worker.around import Around, memory_reader
from skulkd.worker.blas import slow_blas
from skulkd.worker.causes import Ending, not_started
from skulkd.worker.forking import ForkingSpawn
from skulkd.worker.gpu import RunnerGpu, gpu_reader
from skulkd.worker.group_messages import Follow
from skulkd.worker.group_tasks import GroupTasks
from skulkd.worker.groups import Groups, Hands
from skulkd.worker.launching import CannotLaunch, Launcher, Prepared
from skulkd.worker.model_files import LibraryFiles
from skulkd.worker.options import StopSteps, WorkerOptions
from skulkd.worker.plan import (
    STEP_TASKS,
    Action,
    CancelTask,
    Connect,
    EndAttempt,
    Enlist,
    GiveUp,
    Join,
    Load,
    Local,
    LocalRunner,
    Prepare,
    StartRunner,
    Step,
    StopRunner,
    WarmUp,
    next_look,
    plan,
)
from skulkd.worker.process import spawn_runner
from skulkd.worker.refusals import (
    DuplicateTask,
    NoSuchInstance,
    NoSuchTask,
    NotReady,
    QueueFull,
)
from skulkd.worker.slot import Slot
from skulkd.worker.supervisor import Duty, Supervisor
from skulkd.worker.task_stream import (
    INSTANCE_DELETED,
    INSTANCE_LOST,
    NODE_STOPPING,
    TaskEnded,
    TaskStream,
)

_log = logging.getLogger(__name__)
_LONGEST_PAUSE_S = 1.0
# Changes that come faster than this are looked at together: a flood costs one look.
_BREATH_S = 0.01
_LAST_STEPS_S = 10.0
_SAY_AGAIN_S = 5.0
_DELETED = TaskEnded("Cancelled", INSTANCE_DELETED, "cancelled because the instance was deleted")
_MOVED = TaskEnded("Failed", INSTANCE_LOST, "the instance was moved to other nodes; ask again")
_STOPPED = TaskEnded("Failed", NODE_STOPPING, "the node stopped before it finished; ask again")


class Worker:
    """`run` it beside the node, `notify` it of changes of the state, `stop` it before leaving."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        state: Callable[[], State],
        publish: Callable[[Event], None],
        around: Around,
        options: WorkerOptions | None = None,
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._publish = publish
        self._options = options or WorkerOptions()
        # CUDA is initialised when MLX is imported and does not survive a fork.
        self._spawn = around.spawn or (spawn_runner if self._options.cuda else ForkingSpawn())
        find_s = self._options.patience.find_model_s
        environ = os.environ if around.environ is None else around.environ
        self._launcher = Launcher(
            node_id,
            around.files or LibraryFiles(around.library, find_s),
            around.memory or memory_reader(environ),
            RunnerGpu(around.gpu or gpu_reader(environ)) if self._options.cuda else None,
            around.log_dir,
            self._options,
            environ,
        )
        self._on_trace = around.on_trace
        self._homeless = around.homeless
        self._security = around.security
        self._slots: dict[RunnerId, Slot] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._stopping = False
        self._groups, self._group_tasks = self._with_others(around)

    def _with_others(self, around: Around) -> tuple[Groups | None, GroupTasks | None]:
        peers, limits = around.peers, self._options.group
        if peers is None:
            return None, None
        hands = Hands(
            self._slots.values, self._begin, self._wake.set, self._prepare, around.topology
        )
        return Groups(peers, hands, limits), GroupTasks(peers, hands, limits)

    # --- for the node ---

    async def run(self) -> None:
        """Make this machine match the state, until `stop`."""
        # Beside the loop: the answer is for diagnostics, and the loader may be slow.
        while not self._stopping:
            self._wake.clear()
            due = self._look()
            await self._pause(due)

    def notify(self) -> None:
        """The state has changed."""
        self._wake.set()

    async def stop(self, steps: StopSteps | None = None) -> None:
        """End every runner; all are gone and reaped, or killed and given up, when it returns."""
        self._stopping = True
        self._wake.set()
        slots = tuple(self._slots.values())
        leaving = [] if self._groups is None else [self._groups.leave()]
        await asyncio.gather(
            *leaving,
            *(self._stop_slot(slot, steps or self._options.stop, _STOPPED) for slot in slots),
        )
        self._publish_statuses(self._state())
        self._slots.clear()
        if isinstance(self._spawn, ForkingSpawn):
            await self._spawn.close()

    def restart(self, instance_id: InstanceId) -> None:
        """An operator wants a new process, also where it was given up. Raises NoSuchInstance."""
        self._slot(instance_id).restart()
        self._wake.set()

    # --- for requests ---

    async def submit(self, task: TextGeneration, generation: GenerationOptions) -> TaskStream:
        """Hand a request to the runner of its instance. Raises WorkerRefusal, at once."""
        slot = self._slot(task.instance_id)
        supervisor = slot.serving
        if supervisor is None or self._stopping:
            raise NotReady(task.instance_id, slot.record.status)
        if slot.record.book.find(task.task_id) is not None:
            raise DuplicateTask(task.task_id)
        places = self._options.runner.max_concurrent
        waiting = max(0, slot.desk.requests - places)
        if waiting >= self._options.queue_limit and slot.desk.requests >= places:
            after_s = math.ceil(slot.desk.mean_s * (waiting + 1) / places)
            raise QueueFull(task.instance_id, waiting, min(max(after_s, 1), 60))
        cancel = partial(self._cancel, task.task_id)
        stream = TaskStream(task.task_id, self._options.stream_bytes, cancel)

        def hand_over(to: Supervisor) -> TaskStream:
            to.submit(task, generation, stream)
            return stream

        if slot.seat is None or self._group_tasks is None:
            return hand_over(supervisor)
        request = Follow(
            instance_id=task.instance_id,
            attempt=slot.seat.process_attempt,
            task=task,
            generation=generation,
        )
        return await self._group_tasks.submit(slot, request, hand_over, cancel)

    def cancel(self, task_id: TaskId) -> TaskCancelStatus:
        """Ask for the end of a request. Raises NoSuchTask."""
        status = self._cancel(task_id)
        if status is None:
            raise NoSuchTask(task_id)
        return status

    # --- for diagnostics ---

    def diagnostics(self) -> list[RunnerSupervisorDiagnostics]:
        """One record for each runner, alive or not."""
        return [slot.record.diagnostics() for slot in self._slots.values()]

    def cards(self) -> list[ModelCard]:
        """Models whose files a runner of ours holds, also one that is being ended."""
        return [
            slot.instance.shard_assignments.runner_to_shard[slot.runner_id].model_card
            for slot in tuple(self._slots.values())
        ]

    def runner_pids(self) -> frozenset[int]:
        """Processes of ours that run now."""
        records = [slot.record for slot in self._slots.values()]
        return frozenset(record.pid for record in records if record.alive and record.pid)

    def warnings(self) -> list[NodeWarning]:
        """What an operator should know about how runners compute here."""
        told = (slot.record.compute for slot in tuple(self._slots.values()))
        problems = {compute.problem for compute in told if compute and compute.problem}
        return [slow_blas(problem) for problem in sorted(problems)]

    # --- the loop ---

    def _look(self) -> float | None:
        """Do everything that can be done now; when to look again at the latest."""
        state = self._state()
        local = Local(
            self._node_id,
            time.monotonic(),
            {runner_id: self._view(slot) for runner_id, slot in self._slots.items()},
        )
        for action in plan(state, local):
            self._carry_out(action)
        due = [next_look(local), None if self._groups is None else self._groups.look()]
        self._publish_statuses(state)
        return min((at for at in due if at is not None), default=None)

    def _view(self, slot: Slot) -> LocalRunner:
        lost = None if self._groups is None else self._groups.leader_lost(slot)
        return slot.for_plan(lost)

    async def _pause(self, due: float | None) -> None:
        limit_s = _LONGEST_PAUSE_S
        if due is not None:
            limit_s = min(max(due - time.monotonic(), 0.0), limit_s)
        await asyncio.sleep(_BREATH_S)
        try:
            async with asyncio.timeout(limit_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _carry_out(self, action: Action) -> None:
        match action:
            case StartRunner():
                self._start(action)
            case Connect() | Load() | WarmUp():
                self._ask(action)
            case Enlist() | Prepare() | Join() | EndAttempt():
                self._carry_out_in_group(action)
            case StopRunner():
                slot = self._slots[action.runner_id]
                slot.stopping = True
                self._begin(self._retire(slot))
            case GiveUp():
                self._slots[action.runner_id].give_up(action.why)
                _log.error("runner %s is not started again: %s", action.runner_id, action.why)
            case CancelTask():
                self._cancel(action.task_id)
            case _ as unreachable:
                assert_never(unreachable)

    def _carry_out_in_group(self, action: Enlist | Prepare | Join | EndAttempt) -> None:
        if isinstance(action, Enlist):
            slot = self._slots[action.runner_id] = self._new_slot(action)
        slot = self._slots[action.runner_id]
        groups, seat = self._groups, slot.seat
        if groups is None or seat is None:
            why = not_started("this node knows no others, so it has no ranks", restart_helps=False)
            slot.refuse(why, later_s=0.0)
            return
        groups.carry_out(slot, seat, action)

    def _publish_statuses(self, state: State) -> None:
        now = time.monotonic()
        for slot in self._slots.values():
            status = slot.public_status
            if slot.instance.instance_id not in state.instances:
                continue
            # Clusters that meet may keep the instance and lose what was said of its runner.
            shown = status == state.runners.get(slot.runner_id, RunnerShutdown())
            if status != slot.published or (not shown and now - slot.published_at > _SAY_AGAIN_S):
                slot.published, slot.published_at = status, now
                self._publish(RunnerStatusUpdated(runner_id=slot.runner_id, runner_status=status))

    # --- actions ---

    def _start(self, action: StartRunner) -> None:
        slot = self._slots.get(action.runner_id)
        if slot is None:
            slot = self._slots[action.runner_id] = self._new_slot(action)
        slot.starting(self._begin(self._live(slot)))

    def _new_slot(self, action: StartRunner | Enlist) -> Slot:
        return Slot(
            self._node_id,
            action.instance,
            action.runner_id,
            self._options.crashes,
            self._publish,
            time.monotonic,
        )

    async def _live(self, slot: Slot) -> None:
        """One process, from the search for its model to its end."""
        try:
            ending = await self._supervise(slot)
        except asyncio.CancelledError:
            slot.ended(Ending("interrupted", restart_helps=True))
            raise
        except Exception as error:  # noqa: BLE001 - root of the task: it fails this runner alone
            _log.exception("the supervisor of runner %s failed", slot.runner_id)
            ending = Ending(f"supervisor failed: {type(error).__name__}", restart_helps=False)
        slot.ended(ending)
        if not slot.stopping:
            _log.warning("runner %s: %s", slot.runner_id, ending.reason)
        if not self._stopping:
            # At once: whoever reads of the failure must not find the state still ready.
            self._look()
            self._wake.set()

    async def _supervise(self, slot: Slot) -> Ending:
        try:
            prepared = await self._prepared(slot)
        except CannotLaunch as error:
            return not_started(str(error), restart_helps=error.later)
        duty = Duty(prepared.configure, prepared.launch, slot.record, slot.desk, self._options)
        slot.supervisor = Supervisor(duty, self._spawn, self._wake.set)
        slot.supervisor.on_trace = self._on_trace
        return await slot.supervisor.run()

    async def _prepared(self, slot: Slot) -> Prepared:
        """Raises CannotLaunch. In a group all is there, and is not waited for."""
        seat = slot.seat
        if seat is None:
            return await self._prepare(slot)
        if seat.prepared is None or seat.port is None:
            raise CannotLaunch("it has left the attempt", later=True)
        seat.port.starting()
        return seat.prepared.in_group(
            slot.instance, seat.port_attempt, seat.membership.ports, self._security
        )

    async def _prepare(self, slot: Slot) -> Prepared:
        waiting = slot.record.waiting
        try:
            return await self._launcher.prepare(slot.instance, slot.runner_id, waiting)
        finally:
            waiting.end()

    def _ask(self, action: Step) -> None:
        slot = self._slots[action.runner_id]
        task = STEP_TASKS[type(action)](
            task_id=TaskId(str(uuid4())), instance_id=slot.instance.instance_id
        )
        try:
            if slot.supervisor is not None:
                slot.supervisor.ask(task)
        except NotReady as refusal:
            # Its pipe is closed, so its end is on the way.
            _log.debug("runner %s was not asked: %s", slot.runner_id, refusal)

    async def _retire(self, slot: Slot) -> None:
        """The instance is gone, or at least not here any more: clusters that met keep one copy."""
        lost = None if self._groups is None else self._groups.last_words(slot)
        kept = {*self._state().instances, *self._homeless()}
        ended = _MOVED if slot.instance.instance_id in kept else _DELETED
        await self._stop_slot(slot, self._options.stop, lost or ended)
        self._slots.pop(slot.runner_id, None)

    async def _stop_slot(self, slot: Slot, steps: StopSteps, leaving: TaskEnded) -> None:
        slot.stopping = True
        job, supervisor = slot.job, slot.supervisor
        if supervisor is not None and not supervisor.spawning:
            await supervisor.stop(steps, leaving)
        elif job is not None:
            job.cancel()  # there is no process yet
        if job is not None:
            _, late = await asyncio.wait({job}, timeout=_LAST_STEPS_S)
            if late:
                _log.error("the supervisor of runner %s does not end", slot.runner_id)
                job.cancel()
        if slot.seat is not None:
            await slot.seat.leave(_LAST_STEPS_S)
            slot.desk.close(leaving)  # its process may be gone and its requests still wait
        slot.record.set_status(RunnerShutdown())

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        job = asyncio.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    # --- finding ---

    def _slot(self, instance_id: InstanceId) -> Slot:
        for slot in self._slots.values():
            if slot.instance.instance_id == instance_id:
                return slot
        raise NoSuchInstance(instance_id)

    def _cancel(self, task_id: TaskId) -> TaskCancelStatus | None:
        for slot in self._slots.values():
            status = slot.record.book.cancel(task_id)
            if status == "cancel_requested" and slot.supervisor is not None:
                slot.supervisor.cancel(task_id)
                if slot.seat is not None and self._group_tasks is not None:
                    self._group_tasks.drop(slot.seat, task_id)
            if status is not None:
                return status
        return None
