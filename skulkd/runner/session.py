"""The lifecycle of a runner: it carries out its supervisor's tasks and rank 0's orders.

Tasks are carried out one after the other, except for generation tasks, which the engine answers
side by side.
"""

import logging
from collections import deque
from collections.abc import Callable

import mlx.core as mx

from skulkd.runner.compute import read_memory
from skulkd.runner.cpu.blas_binding import OWN_BLAS, BlasInUse
from skulkd.runner.embedding.engine import EmbeddingEngine
from skulkd.runner.embedding.load import EmbeddingModel
from skulkd.runner.errors import BadModel, BadRequest, ContextLengthExceeded, GroupUnreachable
from skulkd.runner.exits import ExitCode
from skulkd.runner.faults import faults_of
from skulkd.runner.generation.engine import Engine
from skulkd.runner.generation.leader import Leader
from skulkd.runner.generation.scheduler import ArrivalWindow
from skulkd.runner.group.orders import Order
from skulkd.runner.model.load import LoadedModel
from skulkd.runner.pipe import Inbox, Message, Outbox
from skulkd.runner.prompts.template_process import Renderer
from skulkd.runner.protocol import Cancel, Configure, FromRunner, GenerationOptions, Output, RunTask
from skulkd.runner.recording.recorder import Owner, PhaseRecorder
from skulkd.runner.reports import FLUSH_S, StatusReporter, owner_of
from skulkd.runner.startup import REBOOT, RunnerDeps, Startup
from skulkd.runner.watchdog import PulseSender, Watchdog
from skulkd.wire import runners
from skulkd.wire.ids import TaskId
from skulkd.wire.tasks import (
    BaseTask,
    ConnectToGroup,
    LoadModel,
    ServedTask,
    Shutdown,
    StartWarmup,
    Task,
    TextEmbedding,
    TextGeneration,
)

_log = logging.getLogger("skulkd.runner")
# A wait longer than this becomes an entry of the recorder.
_LONG_WAIT_S = 1.0


class RunnerSession:
    """Runs until the supervisor stops it or it fails; `run` returns the exit code."""

    def __init__(
        self,
        configure: Configure,
        inbox: Inbox,
        outbox: Outbox,
        recorder: PhaseRecorder,
        render: Renderer,
        blas: BlasInUse = OWN_BLAS,
    ) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._recorder = recorder
        recorder.read_memory = read_memory
        self._reports = StatusReporter(outbox, recorder, configure.shard.world_size)
        self._pulse = PulseSender(recorder, outbox.beat)
        self._watchdog = Watchdog(self._reports.deadline_exceeded, on_tick=self._on_tick)
        self._faults = faults_of(configure.shard.device_rank)
        deps = RunnerDeps(
            configure, inbox, outbox, recorder, self._reports, self._watchdog, self._faults
        )
        self._startup = Startup(deps, render, blas)
        self._several = configure.shard.world_size > 1
        self._engine: Engine | EmbeddingEngine | None = None
        self._leader: Leader | EmbeddingEngine | None = None
        self._code: ExitCode | None = None
        self._progress: Callable[[], None] | None = None
        self._orders: deque[Order] = deque()
        self._window = ArrivalWindow()

    def run(self) -> ExitCode:
        """A failure is reported to the supervisor before its code is returned."""
        try:
            self._watchdog.start()
            self._reports.set_status(runners.RunnerIdle())
            while self._code is None:
                self._handle(self._inbox.wait())
                if self._leader is not None:
                    # Requests that arrive together are prefilled together.
                    self._handle_arrived()
                    self._window.wait(self._open_tasks, self._handle_next)
                if self._orders or (self._leader is not None and self._leader.busy):
                    self._generate()
        except BadModel as error:
            _log.error("%s", error)
            self._fail(str(error), ExitCode.BAD_MODEL)
        except GroupUnreachable as error:
            _log.critical("%s", error)
            self._fail(str(error), ExitCode.CONNECT_DEADLINE)
        except Exception as error:  # noqa: BLE001  # the root of the process: it reports and ends
            _log.exception("the runner crashed")
            lost = self._startup.group.size > 1 and _is_rank_loss(error)
            code = ExitCode.GROUP_LOST if lost else ExitCode.CRASHED
            self._fail(f"{type(error).__name__}: {error}", code)
        self._clean_up()
        return self._code or ExitCode.CLEAN

    # --- messages ---

    def _handle(self, message: Message) -> None:
        if isinstance(message, Order):
            self._orders.append(message)
        elif isinstance(message, RunTask):
            self._run_task(message.task, message.generation or GenerationOptions())
        elif isinstance(message, Cancel):
            self._cancel(message)
        else:
            _log.warning("ignored a second Configure message")

    def _handle_arrived(self) -> None:
        for message in self._inbox.arrived():
            self._handle(message)

    def _handle_next(self, within_s: float) -> bool:
        message = self._inbox.wait_briefly(within_s)
        if message is not None:
            self._handle(message)
        return message is not None

    def _open_tasks(self) -> int:
        return 0 if self._engine is None else len(self._engine.tasks)

    def _run_task(self, task: Task, extra: GenerationOptions) -> None:
        if isinstance(task, TextGeneration | TextEmbedding):
            self._accept(task, extra)
            return
        connecting = runners.RunnerIdle if self._several else type(None)
        loading = runners.RunnerConnected if self._several else runners.RunnerIdle
        handlers: dict[type[BaseTask], tuple[type, Callable[[BaseTask], None]]] = {
            ConnectToGroup: (connecting, self._startup.connect),
            LoadModel: (loading, self._startup.load),
            StartWarmup: (runners.RunnerLoaded, self._warm_up),
            Shutdown: (object, self._shut_down),
        }
        expected, handler = handlers.get(type(task), (type(None), self._reports.refuse))
        if isinstance(self._reports.status, expected):
            handler(task)
        else:
            self._reports.refuse(task)

    def _warm_up(self, task: BaseTask) -> None:
        startup = self._startup
        if startup.loaded is None:
            self._reports.refuse(task)
            return
        self._reports.begin(task, runners.RunnerWarmingUp())
        group, options, owner = startup.group, startup.options, Owner(task.task_id)
        engine: Engine | EmbeddingEngine
        leader: Leader | EmbeddingEngine | None
        with (
            self._recorder.span(
                "warmup", "warmup_generator", owner=owner, memory=True, group_size=group.size
            ),
            self._watchdog.limit(
                "warm-up", options.warmup_deadline_s, ExitCode.WARMUP_WEDGE, REBOOT
            ),
        ):
            if isinstance(startup.loaded, EmbeddingModel):
                engine, leader = self._embedding_engine(startup.loaded)
            else:
                engine, leader = self._text_engine(startup.loaded)
            startup.warm_up(task, engine)
        self._engine, self._leader = engine, leader
        self._reports.complete(task, runners.RunnerReady())
        self._recorder.point("idle", "runner_ready", owner=owner, memory=True)

    def _text_engine(self, loaded: LoadedModel) -> tuple[Engine, Leader | None]:
        group, options = self._startup.group, self._startup.options
        engine = Engine(loaded, options, group, self._recorder, self._send, self._faults)
        leads = group.rank == 0
        return engine, Leader(engine, options.max_concurrent, group.size) if leads else None

    def _embedding_engine(self, model: EmbeddingModel) -> tuple[EmbeddingEngine, EmbeddingEngine]:
        """It is always alone, so it leads itself."""
        engine = EmbeddingEngine(model, self._recorder, self._send, self._faults)
        return engine, engine

    def _shut_down(self, task: BaseTask) -> None:
        self._recorder.point(
            "shutdown_cleanup", "runner_shutdown_requested", owner=Owner(task.task_id)
        )
        self._reports.begin(task, runners.RunnerShuttingDown())
        self._startup.group.leave()
        for task_id in self._engine.tasks if self._engine is not None else ():
            self._reports.cancel(task_id)
        self._recorder.point("shutdown_cleanup", "clear_cache_begin")
        if self._engine is not None:
            self._engine.close()
        mx.clear_cache()
        self._recorder.point("shutdown_cleanup", "clear_cache_complete", memory=True)
        self._reports.ending = True
        self._reports.complete(task, runners.RunnerShutdown())
        self._code = ExitCode.CLEAN

    # --- generation ---

    def _accept(self, task: ServedTask, extra: GenerationOptions) -> None:
        engine = self._engine
        if engine is None or not engine.serves(task):
            self._reports.refuse(task)
            return
        if self._faults.has("drop_task"):
            _log.warning("fault: task %s is lost", task.task_id)
            return
        self._reports.accept(task)
        try:
            (self._leader or engine).accept(task, extra)
        except BadRequest as error:
            if isinstance(error, ContextLengthExceeded):
                self._recorder.point(
                    "completion", "context_admission_rejected", owner=owner_of(task), memory=True
                )
            self._reports.fail(task.task_id, str(error), "invalid_request_error")
        if not engine.tasks:
            self._reports.ready()

    def _cancel(self, message: Cancel) -> None:
        self._recorder.point(
            "cancel_requested", "batch_cancel_pipe_observed", owner=Owner(message.task_id)
        )
        # Only rank 0 acts on it; the other ranks get an order.
        if self._leader is None or self._faults.has("ignore_cancel"):
            return
        if not self._leader.cancel(message.task_id):
            _log.info("cancel of a task that is not here: %s", message.task_id)

    def _generate(self) -> None:
        """Carry out orders until there is nothing more to do."""
        engine = self._engine
        if engine is None:
            raise RuntimeError("an order before this rank was warm")
        limit_s = self._startup.options.eval_deadline_s
        first = True
        with self._watchdog.limit(
            "a step of generation", limit_s, ExitCode.EVAL_WEDGE, REBOOT
        ) as progress:
            self._progress = progress
            while self._code is None:
                order = self._next_order()
                engine.follow(order, self._fetch)
                progress()
                if first and order.lane is not None:
                    first = False
                    self._handle_arrived()
                    self._window.record(len(engine.tasks))
                if order.sleep and not self._orders:
                    break
        if self._code is None and not engine.tasks:
            self._reports.ready()

    def _next_order(self) -> Order:
        """Rank 0 makes it and sends it to the other ranks, which wait for it here."""
        if self._leader is not None:
            self._handle_arrived()
            order = self._leader.next_order()
            self._startup.group.broadcast(order)
            return order
        while not self._orders and self._code is None:
            self._wait_in("order_wait")
        return self._orders.popleft() if self._orders else Order(sleep=True)

    def _fetch(self, task_id: TaskId) -> None:
        """Wait for a task that rank 0 has and this rank's supervisor has not sent yet."""
        while self._code is None and self._engine and not self._engine.holds(task_id):
            self._wait_in("task_wait")

    def _wait_in(self, site: str) -> None:
        with self._recorder.wait(site, entry="never"):
            message = self._inbox.wait()
        self._handle(message)

    def _send(self, message: FromRunner) -> None:
        """For the engine; a slow supervisor must not look like a wedged model."""
        # With one open request, write its output directly; with several, the outbox joins them.
        single = isinstance(message, Output) and self._open_tasks() == 1
        self._outbox.send(message, self._progress, at_once=single)

    # --- ends ---

    def _fail(self, reason: str, code: ExitCode) -> None:
        self._code = code
        self._reports.ending = True
        if self._engine is not None:
            for task_id in self._engine.tasks:
                self._reports.fail(task_id, f"the runner failed: {reason}", "runner_failed")
            self._engine.abort(reason)
        self._reports.crashed(reason)

    def _on_tick(self) -> None:
        """Four times a second, from the watchdog's thread."""
        self._recorder.show_long_wait(_LONG_WAIT_S)
        self._pulse.tick(self._watchdog.working)

    def _clean_up(self) -> None:
        self._recorder.point("shutdown_cleanup", "metal_cleanup_begin")
        mx.clear_cache()
        self._recorder.point("shutdown_cleanup", "metal_cleanup_complete", memory=True)
        if not self._outbox.flush(FLUSH_S):
            _log.warning("the supervisor did not read the last messages")


def _is_rank_loss(error: Exception) -> bool:
    """Whether an error is what MLX or a connection raises when another rank is gone."""
    return isinstance(error, OSError) or any(
        name in str(error) for name in ("[ring]", "[jaccl]", "peer")
    )
