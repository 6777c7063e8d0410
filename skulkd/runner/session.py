"""The life of a runner: configured, loaded, warm, serving, stopped. One task after another.

Generation tasks are the exception: they are handed to the engine and answered side by side.
"""

import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx

from skulkd.runner import memory
from skulkd.runner.blas_binding import OWN_BLAS, BlasInUse
from skulkd.runner.company import Company
from skulkd.runner.compute import compute_report
from skulkd.runner.cores import cores_here, machine_mark
from skulkd.runner.deadlines import Guard, Watchdog
from skulkd.runner.engine import Engine
from skulkd.runner.exits import ExitCode
from skulkd.runner.faults import faults_of
from skulkd.runner.group import Group, SoloGroup, agreed_options, connect
from skulkd.runner.inbox import Inbox, Message
from skulkd.runner.leader import Leader
from skulkd.runner.load import LoadedModel, Part, load
from skulkd.runner.model_files import BadModel
from skulkd.runner.orders import Order
from skulkd.runner.outbox import Outbox
from skulkd.runner.phases import Owner, PhaseRecorder
from skulkd.runner.protocol import (
    Cancel,
    Computing,
    Configure,
    FromRunner,
    GenerationOptions,
    Output,
    RunnerOptions,
    RunTask,
    Status,
    TaskStatus,
)
from skulkd.runner.pulse import Heart
from skulkd.runner.refusals import BadRequest, ContextLengthExceeded
from skulkd.runner.rendezvous import GroupUnreachable
from skulkd.runner.reports import Reports, owner_of
from skulkd.runner.template_process import Renderer
from skulkd.runner.warmup import warm_up
from skulkd.wire import runners
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import (
    BaseTask,
    ConnectToGroup,
    LoadModel,
    Shutdown,
    StartWarmup,
    Task,
    TextGeneration,
)

_log = logging.getLogger("skulkd.runner")
_REBOOT = (
    "The accelerator is probably wedged: delete the instance, and reboot this machine if it "
    "happens again."
)
_NETWORK = "Check that the machines of the group reach each other, then place again."
_DISK = "The disk or share that holds the model is slow or gone: check it and place again."
_FLUSH_S = 2.0
# The rendezvous has its own limit and knows more; this one is for what hangs after it.
_CONNECT_GRACE_S = 15.0
# A wait longer than this shows in the recorder.
_SHOWN_AFTER_S = 1.0


class Session:
    """Runs until it is told to stop; `run` returns the exit code."""

    def __init__(
        self,
        configure: Configure,
        inbox: Inbox,
        outbox: Outbox,
        recorder: PhaseRecorder,
        render: Renderer,
        blas: BlasInUse = OWN_BLAS,
    ) -> None:
        self._configure = configure
        self._render = render
        self._blas = blas
        self._options = configure.options
        self._inbox = inbox
        self._outbox = outbox
        self._recorder = recorder
        recorder.read_memory = memory.read_memory
        self._heart = Heart(recorder, outbox.beat)
        self._watchdog = Watchdog(self._overrun, on_look=self._look)
        self._faults = faults_of(configure.shard.device_rank)
        self._group: Group = SoloGroup()
        self._ranks_here = 1
        self._loaded: LoadedModel | None = None
        self._engine: Engine | None = None
        self._reports = Reports(outbox, recorder, configure.shard.world_size)
        self._code: ExitCode | None = None
        self._progress: Callable[[], None] | None = None
        self._deferred: deque[Order] = deque()
        self._company = Company()

    def run(self) -> ExitCode:
        """Serve; a failure is reported to the supervisor before the code is returned."""
        try:
            self._watchdog.start()
            self._reports.set_status(runners.RunnerIdle())
            while self._code is None:
                self._take(self._inbox.wait())
                if isinstance(self._engine, Leader):
                    # Requests that come together are read together.
                    self._take_arrived()
                    self._company.wait(self._open_tasks, self._take_next)
                    if self._engine.busy and self._code is None:
                        self._generate(self._engine)
        except BadModel as error:
            _log.error("%s", error)
            self._fail(str(error), ExitCode.BAD_MODEL)
        except GroupUnreachable as error:
            _log.critical("%s", error)
            self._fail(str(error), ExitCode.CONNECT_DEADLINE)
        except Exception as error:  # noqa: BLE001  # the root of the process: it reports and ends
            _log.exception("the runner crashed")
            lost = self._group.size > 1 and _is_loss(error)
            code = ExitCode.GROUP_LOST if lost else ExitCode.CRASHED
            self._fail(f"{type(error).__name__}: {error}", code)
        self._clean_up()
        return self._code or ExitCode.CLEAN

    # --- messages ---

    def _take(self, message: Message) -> None:
        if isinstance(message, Order):
            self._follow(message)
        elif isinstance(message, RunTask):
            self._run_task(message.task, message.generation or GenerationOptions())
        elif isinstance(message, Cancel):
            self._cancel(message)
        else:
            _log.warning("configured twice; the second time is ignored")

    def _take_arrived(self) -> None:
        for message in self._inbox.arrived():
            self._take(message)

    def _take_next(self, within_s: float) -> bool:
        message = self._inbox.wait_briefly(within_s)
        if message is not None:
            self._take(message)
        return message is not None

    def _open_tasks(self) -> int:
        return 0 if self._engine is None else len(self._engine.tasks)

    def _run_task(self, task: Task, extra: GenerationOptions) -> None:
        if isinstance(task, TextGeneration):
            self._accept(task, extra)
            return
        several = self._configure.shard.world_size > 1
        connecting = runners.RunnerIdle if several else type(None)
        loading = runners.RunnerConnected if several else runners.RunnerIdle
        handlers: dict[type[BaseTask], tuple[type, Callable[[BaseTask], None]]] = {
            ConnectToGroup: (connecting, self._connect),
            LoadModel: (loading, self._load),
            StartWarmup: (runners.RunnerLoaded, self._warm_up),
            Shutdown: (object, self._shut_down),
        }
        expected, handler = handlers.get(type(task), (type(None), self._reports.refuse))
        if isinstance(self._reports.status, expected):
            handler(task)
        else:
            self._reports.refuse(task)

    def _cancel(self, message: Cancel) -> None:
        self._recorder.point(
            "cancel_requested", "batch_cancel_pipe_observed", owner=Owner(message.task_id)
        )
        # Only rank 0 acts on it; the others hear of it in an order.
        if isinstance(self._engine, Leader) and not self._engine.cancel(message.task_id):
            _log.info("cancel of a task that is not here: %s", message.task_id)

    # --- life ---

    def _connect(self, task: BaseTask) -> None:
        shard, hosts = self._configure.shard, self._configure.group or []
        self._reports.begin(task, runners.RunnerConnecting())
        if len(hosts) != shard.world_size:
            raise GroupUnreachable(
                f"the group has {shard.world_size} ranks and {len(hosts)} addresses"
            )
        limit_s = self._options.connect_deadline_s + _CONNECT_GRACE_S
        with (
            self._recorder.inside(
                "connect_group",
                "initialize_mlx",
                owner=Owner(task.task_id),
                memory=True,
                rank=shard.device_rank,
                group_size=shard.world_size,
                addresses=[f"{host.ip}:{host.port}" for host in hosts],
            ),
            self._watchdog.limit("joining the group", limit_s, ExitCode.CONNECT_DEADLINE, _NETWORK),
        ):
            self._faults.stall("stall_connect")
            with self._recorder.brief("group_handshake", entry="never"):
                said: dict[str, object] = {
                    "options": self._options.model_dump(),
                    "machine": machine_mark(),
                }
                group, meeting = connect(self._configure, said)
        everybody = [RunnerOptions.model_validate(one["options"]) for one in meeting.said]
        self._options = agreed_options(self._options, everybody)
        self._ranks_here = [one.get("machine") for one in meeting.said].count(machine_mark())
        self._group = group
        group.listen(self._inbox.order, self._lost)
        self._reports.complete(task, runners.RunnerConnected())

    def _load(self, task: BaseTask) -> None:
        shard = self._configure.shard
        total = shard.end_layer - shard.start_layer
        self._reports.begin(task, runners.RunnerLoading(layers_loaded=0, total_layers=total))
        if shard.immediate_exception:
            raise RuntimeError("the shard asks for a failure (immediateException)")
        with (
            self._recorder.inside(
                "load_model", "load_mlx_items", owner=Owner(task.task_id), memory=True
            ),
            self._watchdog.limit(
                "reading the model", self._options.layer_deadline_s, ExitCode.LOAD_DEADLINE, _DISK
            ) as progress,
        ):

            def on_layer(loaded: int, of: int) -> None:
                progress()
                self._reports.set_status(
                    runners.RunnerLoading(layers_loaded=loaded, total_layers=of)
                )

            self._loaded = load(
                Path(self._configure.model_path),
                shard.model_card,
                part=Part(self._group, shard.start_layer, shard.end_layer),
                trust_remote_code=self._options.trust_remote_code,
                on_layer=on_layer,
                cores=cores_here(self._options.cores, self._ranks_here),
                float32=self._options.float32,
                render=self._render,
            )
        compute = compute_report(self._blas, self._loaded, float32=self._options.float32)
        owner, attrs = Owner(task.task_id), compute.model_dump(exclude_none=True)
        self._recorder.point(
            "load_model", "loaded", "builder_complete", owner=owner, memory=True, **attrs
        )
        self._outbox.send(Computing(compute=compute))
        self._reports.complete(task, runners.RunnerLoaded())

    def _warm_up(self, task: BaseTask) -> None:
        if self._loaded is None:
            self._reports.refuse(task)
            return
        self._reports.begin(task, runners.RunnerWarmingUp())
        owner = Owner(task.task_id)
        kind = Leader if self._group.rank == 0 else Engine
        with (
            self._recorder.inside(
                "warmup", "warmup_generator", owner=owner, memory=True, group_size=self._group.size
            ),
            self._watchdog.limit(
                "warm-up", self._options.warmup_deadline_s, ExitCode.WARMUP_WEDGE, _REBOOT
            ),
        ):
            engine = kind(
                self._loaded, self._options, self._group, self._recorder, self._say, self._faults
            )
            shard = self._configure.shard
            warm_up(engine, self._group, self._recorder, owner, shard, self._faults)
        self._engine = engine
        self._reports.complete(task, runners.RunnerReady())
        self._recorder.point("idle", "runner_ready", owner=owner, memory=True)

    def _accept(self, task: TextGeneration, extra: GenerationOptions) -> None:
        if self._engine is None:
            self._reports.refuse(task)
            return
        if self._faults.has("drop_task"):
            _log.warning("fault: task %s is lost", task.task_id)
            return
        self._reports.accept(task)
        try:
            self._engine.accept(task, extra)
        except BadRequest as refusal:
            self._reject(task, refusal)

    def _reject(self, task: TextGeneration, refusal: BadRequest) -> None:
        if isinstance(refusal, ContextLengthExceeded):
            self._recorder.point(
                "completion", "context_admission_rejected", owner=owner_of(task), memory=True
            )
        self._reports.fail(task.task_id, str(refusal))
        if self._engine is not None and not self._engine.tasks:
            self._reports.rest()

    def _generate(self, engine: Leader) -> None:
        with self._watchdog.limit(
            "a step of generation", self._options.eval_deadline_s, ExitCode.EVAL_WEDGE, _REBOOT
        ) as progress:
            self._progress = progress
            self._step(engine, progress)
            self._company.seen(len(engine.tasks))
            while engine.busy and self._code is None:
                self._step(engine, progress)
        if self._code is None and self._reports.running:
            self._reports.rest()

    def _step(self, engine: Leader, progress: Callable[[], None]) -> None:
        engine.step()
        progress()
        self._take_arrived()

    def _follow(self, order: Order) -> None:
        """Do as rank 0 says until it says that there is nothing more to do."""
        engine = self._engine
        if engine is None:
            raise RuntimeError("an order before this rank was warm")
        self._deferred.append(order)
        with self._watchdog.limit(
            "a step of generation", self._options.eval_deadline_s, ExitCode.EVAL_WEDGE, _REBOOT
        ) as progress:
            self._progress = progress
            while self._code is None:
                order = self._next_order()
                engine.follow(order, self._fetch)
                progress()
                if order.sleep and not self._deferred:
                    break
        if self._code is None and not engine.tasks:
            self._reports.rest()

    def _next_order(self) -> Order:
        while not self._deferred and self._code is None:
            with self._recorder.brief("order_wait", entry="never"):
                message = self._inbox.wait()
            self._take_beside_orders(message)
        return self._deferred.popleft() if self._deferred else Order(0, sleep=True)

    def _fetch(self, task_id: TaskId) -> None:
        """Wait for a task that rank 0 has and this rank's supervisor has not brought yet."""
        while self._code is None and self._engine and not self._engine.holds(task_id):
            with self._recorder.brief("task_wait", entry="never"):
                message = self._inbox.wait()
            self._take_beside_orders(message)

    def _take_beside_orders(self, message: Message) -> None:
        if isinstance(message, Order):
            self._deferred.append(message)
        else:
            self._take(message)

    def _say(self, message: FromRunner) -> None:
        """What the engine has to say; a slow supervisor must not look like a wedged model."""
        # Who is alone has the pipe to itself; the words of several leave together.
        alone = isinstance(message, Output) and self._open_tasks() == 1
        self._outbox.send(message, self._progress, at_once=alone)

    def _shut_down(self, task: BaseTask) -> None:
        self._recorder.point(
            "shutdown_cleanup", "runner_shutdown_requested", owner=Owner(task.task_id)
        )
        self._reports.begin(task, runners.RunnerShuttingDown())
        self._group.part()
        self._end_tasks(None)
        self._recorder.point("shutdown_cleanup", "clear_cache_begin")
        if self._engine is not None:
            self._engine.close()
        mx.clear_cache()
        self._recorder.point("shutdown_cleanup", "clear_cache_complete", memory=True)
        self._reports.complete(task, runners.RunnerShutdown())
        self._code = ExitCode.CLEAN

    # --- ends ---

    def _end_tasks(self, reason: str | None) -> None:
        """Every open request ends: with the reason, or as cancelled when there is none."""
        for task_id in self._engine.tasks if self._engine is not None else []:
            self._outbox.send(
                TaskStatus(
                    task_id=task_id,
                    status="Failed" if reason else "Cancelled",
                    error_type="runner_failed" if reason else None,
                    error_message=reason,
                )
            )

    def _fail(self, reason: str, code: ExitCode) -> None:
        self._code = code
        self._end_tasks(f"the runner failed: {reason}")
        if self._engine is not None:
            self._engine.abort(reason)
        self._reports.set_status(runners.RunnerFailed(error_message=reason))
        self._recorder.breadcrumb("runner_crashed", reason, phase="error")

    def _lost(self, rank: int, address: str) -> None:
        """Another rank is gone. MLX may never notice, so this ends the process, from a thread."""
        if self._code is not None:
            return
        reason = f"rank {rank} at {address} is gone; the group must start again"
        _log.critical("%s; exit code %d", reason, ExitCode.GROUP_LOST)
        self._outbox.post(Status(status=runners.RunnerFailed(error_message=reason)))
        self._recorder.breadcrumb("group_lost", reason, lost_rank=rank)
        self._outbox.flush(_FLUSH_S)
        os._exit(ExitCode.GROUP_LOST)

    def _look(self) -> None:
        """Four times a second, from the watchdog's thread."""
        self._recorder.surface(_SHOWN_AFTER_S)
        self._heart.look(self._watchdog.working)

    def _overrun(self, guard: Guard) -> None:
        event = "pipeline_eval_timeout" if guard.code == ExitCode.EVAL_WEDGE else "deadline"
        reason = f"{guard.what} made no progress for {guard.limit_s:g} s. {guard.advice}"
        self._outbox.post(Status(status=runners.RunnerFailed(error_message=reason)))
        waiting = self._recorder.waiting
        site = guard.what if waiting is None else waiting.detail
        self._recorder.breadcrumb(event, site, limit_s=guard.limit_s, exit_code=guard.code)

    def _clean_up(self) -> None:
        self._recorder.point("shutdown_cleanup", "metal_cleanup_begin")
        mx.clear_cache()
        self._recorder.point("shutdown_cleanup", "metal_cleanup_complete", memory=True)
        if not self._outbox.flush(_FLUSH_S):
            _log.warning("the supervisor did not take the last messages")


def _is_loss(error: Exception) -> bool:
    """Whether an error is what MLX or a connection says when another rank is gone."""
    return isinstance(error, OSError) or any(
        name in str(error) for name in ("[ring]", "[jaccl]", "peer")
    )
