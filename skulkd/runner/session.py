"""The life of a runner: configured, loaded, warm, serving, stopped. One task after another.

Generation tasks are the exception: they are handed to the engine and answered side by side.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx

from skulkd.runner import memory
from skulkd.runner.deadlines import Guard, Watchdog
from skulkd.runner.engine import Engine
from skulkd.runner.exits import ExitCode
from skulkd.runner.group import Group, SoloGroup
from skulkd.runner.inbox import Inbox
from skulkd.runner.load import LoadedModel, load
from skulkd.runner.model_files import BadModel
from skulkd.runner.outbox import Outbox
from skulkd.runner.phases import Owner, PhaseRecorder
from skulkd.runner.protocol import (
    Cancel,
    Configure,
    FromRunner,
    GenerationOptions,
    RunTask,
    Status,
    TaskAcknowledged,
    TaskStatus,
)
from skulkd.runner.refusals import BadRequest, ContextLengthExceeded
from skulkd.wire import runners
from skulkd.wire.tasks import (
    BaseRequestTask,
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
_DISK = "The disk or share that holds the model is slow or gone: check it and place again."
_FLUSH_S = 2.0


class Session:
    """Runs until it is told to stop; `run` returns the exit code."""

    def __init__(
        self, configure: Configure, inbox: Inbox, outbox: Outbox, recorder: PhaseRecorder
    ) -> None:
        self._configure = configure
        self._options = configure.options
        self._inbox = inbox
        self._outbox = outbox
        self._recorder = recorder
        recorder.read_memory = memory.snapshot
        self._watchdog = Watchdog(self._overrun)
        self._group: Group = SoloGroup()
        self._loaded: LoadedModel | None = None
        self._engine: Engine | None = None
        self._status: runners.RunnerStatus = runners.RunnerIdle()
        self._code: ExitCode | None = None
        self._progress: Callable[[], None] | None = None

    def run(self) -> ExitCode:
        """Serve; a failure is reported to the supervisor before the code is returned."""
        try:
            self._watchdog.start()
            self._set_status(runners.RunnerIdle())
            while self._code is None:
                self._take(self._inbox.wait())
                if self._engine is not None and self._engine.busy:
                    self._generate(self._engine)
        except BadModel as error:
            _log.error("%s", error)
            self._fail(str(error), ExitCode.BAD_MODEL)
        except Exception as error:  # noqa: BLE001  # the root of the process: it reports and ends
            _log.exception("the runner crashed")
            self._fail(f"{type(error).__name__}: {error}", ExitCode.CRASHED)
        self._clean_up()
        return self._code or ExitCode.CLEAN

    # --- messages ---

    def _take(self, message: Configure | RunTask | Cancel) -> None:
        if isinstance(message, RunTask):
            self._run_task(message.task, message.generation or GenerationOptions())
        elif isinstance(message, Cancel):
            self._cancel(message)
        else:
            _log.warning("configured twice; the second time is ignored")

    def _run_task(self, task: Task, extra: GenerationOptions) -> None:
        if isinstance(task, TextGeneration):
            self._accept(task, extra)
            return
        handlers: dict[type[BaseTask], tuple[type, Callable[[BaseTask], None]]] = {
            LoadModel: (runners.RunnerIdle, self._load),
            StartWarmup: (runners.RunnerLoaded, self._warm_up),
            Shutdown: (object, self._shut_down),
        }
        expected, handler = handlers.get(type(task), (type(None), self._refuse))
        if self._group.size > 1 and isinstance(task, LoadModel):
            expected = runners.RunnerConnected
        if isinstance(self._status, expected):
            handler(task)
        else:
            self._refuse(task)

    def _refuse(self, task: BaseTask) -> None:
        kind = type(task).__name__
        reason = f"{kind} does not fit a runner that is {type(self._status).__name__}"
        if isinstance(task, ConnectToGroup):
            reason = "a runner of one rank has no group to connect to"
        elif isinstance(task, BaseRequestTask) and not isinstance(task, TextGeneration):
            reason = f"this runner answers text, not {kind}"
        self._outbox.send(TaskAcknowledged(task_id=task.task_id))
        self._outbox.send(
            TaskStatus(
                task_id=task.task_id,
                status="Failed",
                error_type="invalid_request_error",
                error_message=reason,
            )
        )

    def _cancel(self, message: Cancel) -> None:
        self._recorder.point(
            "cancel_requested", "batch_cancel_pipe_observed", owner=Owner(message.task_id)
        )
        if self._engine is None or not self._engine.cancel(message.task_id):
            _log.info("cancel of a task that is not here: %s", message.task_id)

    # --- life ---

    def _begin(self, task: BaseTask, status: runners.RunnerStatus) -> None:
        self._outbox.send(TaskStatus(task_id=task.task_id, status="Running"))
        self._set_status(status)
        self._acknowledge(task)

    def _acknowledge(self, task: BaseTask) -> None:
        self._outbox.send(TaskAcknowledged(task_id=task.task_id))
        self._recorder.point(
            "task_submission", "task_acknowledged", type(task).__name__, owner=_owner(task)
        )

    def _complete(self, task: BaseTask, status: runners.RunnerStatus) -> None:
        self._outbox.send(TaskStatus(task_id=task.task_id, status="Complete"))
        self._set_status(status)

    def _set_status(self, status: runners.RunnerStatus) -> None:
        self._status = status
        self._outbox.send(Status(status=status))

    def _load(self, task: BaseTask) -> None:
        shard = self._configure.shard
        total = shard.end_layer - shard.start_layer
        self._begin(task, runners.RunnerLoading(layers_loaded=0, total_layers=total))
        if shard.world_size > 1:
            raise BadModel(f"a shard of {shard.world_size} ranks needs a group to run in")
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
                self._set_status(runners.RunnerLoading(layers_loaded=loaded, total_layers=of))

            self._loaded = load(
                Path(self._configure.model_path),
                shard.model_card,
                trust_remote_code=self._options.trust_remote_code,
                on_layer=on_layer,
            )
        self._recorder.point(
            "load_model", "loaded", "builder_complete", owner=Owner(task.task_id), memory=True
        )
        self._complete(task, runners.RunnerLoaded())

    def _warm_up(self, task: BaseTask) -> None:
        if self._loaded is None:
            self._refuse(task)
            return
        self._begin(task, runners.RunnerWarmingUp())
        owner = Owner(task.task_id)
        size, model_id = self._group.size, self._loaded.card.model_id
        engine = Engine(self._loaded, self._options, self._group, self._recorder, self._say)
        with (
            self._recorder.inside(
                "warmup", "warmup_generator", owner=owner, memory=True, group_size=size
            ),
            self._watchdog.limit(
                "warm-up", self._options.warmup_deadline_s, ExitCode.WARMUP_WEDGE, _REBOOT
            ),
        ):
            self._recorder.point(
                "warmup",
                "warmup_start",
                owner=owner,
                memory=True,
                model_id=model_id,
                group_size=size,
            )
            with self._recorder.inside(
                "prefill_barrier", "warmup_pre_generation_barrier", owner=owner
            ):
                self._group.barrier()
            with self._recorder.inside(
                "warmup", "warmup_mlx_generate", owner=owner, memory=True, model_id=model_id
            ):
                if self._configure.shard.should_timeout:
                    time.sleep(self._configure.shard.should_timeout)
                tokens = engine.warm_up()
            with self._recorder.inside(
                "decode_barrier",
                "warmup_final_barrier",
                owner=owner,
                model_id=model_id,
                tokens_generated=tokens,
            ):
                self._group.barrier()
        self._engine = engine
        self._complete(task, runners.RunnerReady())
        self._recorder.point("idle", "runner_ready", owner=owner, memory=True)

    def _accept(self, task: TextGeneration, extra: GenerationOptions) -> None:
        if self._engine is None:
            self._refuse(task)
            return
        self._outbox.send(TaskStatus(task_id=task.task_id, status="Running"))
        if not self._engine.busy:
            self._set_status(runners.RunnerRunning())
        self._acknowledge(task)
        self._recorder.point(
            "task_submission",
            "submit_text_generation",
            _summary(task),
            owner=_owner(task),
            images=len(task.task_params.images),
        )
        try:
            self._engine.submit(task, extra)
        except BadRequest as refusal:
            self._reject(task, refusal)

    def _reject(self, task: TextGeneration, refusal: BadRequest) -> None:
        if isinstance(refusal, ContextLengthExceeded):
            self._recorder.point(
                "completion", "context_admission_rejected", owner=_owner(task), memory=True
            )
        self._outbox.send(
            TaskStatus(
                task_id=task.task_id,
                status="Failed",
                error_type="invalid_request_error",
                error_message=str(refusal),
            )
        )
        if self._engine is not None and not self._engine.busy:
            self._rest()

    def _generate(self, engine: Engine) -> None:
        with self._watchdog.limit(
            "a step of generation", self._options.eval_deadline_s, ExitCode.EVAL_WEDGE, _REBOOT
        ) as progress:
            self._progress = progress
            while engine.busy and self._code is None:
                engine.step()
                progress()
                for message in self._inbox.arrived():
                    self._take(message)
        if self._code is None:
            self._rest()

    def _say(self, message: FromRunner) -> None:
        """What the engine has to say; a slow supervisor must not look like a wedged model."""
        self._outbox.send(message, self._progress)

    def _rest(self) -> None:
        self._set_status(runners.RunnerReady())
        self._recorder.point("idle", "runner_ready", memory=True)

    def _shut_down(self, task: BaseTask) -> None:
        self._recorder.point(
            "shutdown_cleanup", "runner_shutdown_requested", owner=Owner(task.task_id)
        )
        self._begin(task, runners.RunnerShuttingDown())
        self._end_tasks(None)
        self._recorder.point("shutdown_cleanup", "clear_cache_begin")
        if self._engine is not None:
            self._engine.close()
        mx.clear_cache()
        self._recorder.point("shutdown_cleanup", "clear_cache_complete", memory=True)
        self._complete(task, runners.RunnerShutdown())
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
        self._set_status(runners.RunnerFailed(error_message=reason))
        self._recorder.breadcrumb("runner_crashed", reason, phase="error")

    def _overrun(self, guard: Guard) -> None:
        event = "pipeline_eval_timeout" if guard.code == ExitCode.EVAL_WEDGE else "deadline"
        reason = f"{guard.what} made no progress for {guard.limit_s:g} s. {guard.advice}"
        self._outbox.post(Status(status=runners.RunnerFailed(error_message=reason)))
        self._recorder.breadcrumb(event, guard.what, limit_s=guard.limit_s, exit_code=guard.code)

    def _clean_up(self) -> None:
        self._recorder.point("shutdown_cleanup", "metal_cleanup_begin")
        mx.clear_cache()
        self._recorder.point("shutdown_cleanup", "metal_cleanup_complete", memory=True)
        if not self._outbox.flush(_FLUSH_S):
            _log.warning("the supervisor did not take the last messages")


def _owner(task: BaseTask) -> Owner:
    return Owner(task.task_id, task.command_id if isinstance(task, BaseRequestTask) else None)


def _summary(task: TextGeneration) -> str:
    """Counts and never content."""
    params = task.task_params
    messages = len(params.chat_template_messages or params.input)
    return f"{messages} messages, {len(params.tools or [])} tools, max {params.max_output_tokens}"
