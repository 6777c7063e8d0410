"""The runner as a process: its ties to the supervisor, its first message, its exit.

Imports MLX only after the ties hold, so that a supervisor that dies meanwhile takes it along.
"""

import faulthandler
import logging
import os
import select
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from skulkd.runner.exits import ExitCode
from skulkd.runner.framing import write_all
from skulkd.runner.parent_process import die_with_parent, watch_parent
from skulkd.runner.pipe import Inbox, Outbox
from skulkd.runner.prompts.template_process import TemplateProcess
from skulkd.runner.protocol import Configure
from skulkd.runner.recording.recorder import PhaseRecorder
from skulkd.wire.diagnostics import RunnerDiagnosticContext

if TYPE_CHECKING:
    from skulkd.runner.cpu.blas_binding import BlasInUse

_log = logging.getLogger("skulkd.runner")
# Model files are local: nothing here may ask a hub or print advice. Threads of its own would
# make a library unsafe to fork, and more than one slow MLX down.
_QUIET_LIBRARIES = {
    "OPENBLAS_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}

_SWITCH_S = 0.0005


def quiet_libraries() -> None:
    """Must come before transformers is imported."""
    os.environ.update(_QUIET_LIBRARIES)


def serve(in_fd: int, out_fd: int) -> NoReturn:
    """Be a runner on these two pipes. Ends the process; never returns."""
    parent = os.getppid()
    if not die_with_parent():
        watch_parent(parent, lambda: _leave(ExitCode.SUPERVISOR_GONE, "the parent process ended"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    templates = TemplateProcess.start(close=(in_fd, out_fd))
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    faulthandler.enable()
    threading.excepthook = _thread_failed
    room = select.poll()
    room.register(out_fd, select.POLLOUT)
    outbox = Outbox(
        lambda data: write_all(out_fd, data),
        lambda: _leave(ExitCode.SUPERVISOR_GONE, "nobody reads this runner's messages"),
        has_room=lambda: bool(room.poll(0)),
    )
    inbox = Inbox(
        in_fd,
        on_ack=outbox.acknowledge,
        on_end=lambda: _leave(ExitCode.SUPERVISOR_GONE, "the supervisor closed the pipe"),
        on_broken=lambda why: _leave(ExitCode.BAD_MESSAGE, f"unreadable message: {why}"),
    )
    outbox.start()
    inbox.start()
    first = inbox.wait()
    if not isinstance(first, Configure):
        _leave(ExitCode.BAD_MESSAGE, f"{type(first).__name__} before Configure")
    _run(first, inbox, outbox, templates)


def _run(
    configure: Configure, inbox: Inbox, outbox: Outbox, templates: TemplateProcess
) -> NoReturn:
    recorder = PhaseRecorder(_context(configure), outbox, lambda: None)
    recorder.point("created", "process_started", memory=True)
    quiet_libraries()
    import mlx.core as mx

    from skulkd.runner.session import RunnerSession

    if mx.default_device() == mx.cpu:
        # On a CPU every compiled kernel starts a C++ compiler, and is no faster for it.
        mx.disable_compile()
    # A forked runner would otherwise draw the same numbers as its siblings.
    mx.random.seed(int.from_bytes(os.urandom(8), "big"))
    # Messages come and go in threads of their own; those must not wait while a step is queued.
    sys.setswitchinterval(_SWITCH_S)
    blas = _bind_blas(configure.options.blas, recorder)
    code = RunnerSession(configure, inbox, outbox, recorder, templates.render, blas).run()
    _leave(code, "the runner stopped")


def _bind_blas(setting: str, recorder: PhaseRecorder) -> "BlasInUse":
    """Before anything is computed; what cannot be bound is told once and changes nothing."""
    from skulkd.runner.cpu.blas_binding import bind_blas

    blas = bind_blas(setting)
    if blas.problem is not None:
        _log.warning("MLX keeps its slow reference BLAS: %s", blas.problem)
        recorder.point("created", "blas_not_bound", blas.problem[:200])
    else:
        recorder.point("created", "blas_bound", blas.name)
    return blas


def _context(configure: Configure) -> RunnerDiagnosticContext:
    shard = configure.shard
    return RunnerDiagnosticContext(
        node_id=configure.node_id,
        runner_id=configure.runner_id,
        pid=os.getpid(),
        instance_id=configure.instance_id,
        model_id=shard.model_card.model_id,
        rank=shard.device_rank,
        world_size=shard.world_size,
        start_layer=shard.start_layer,
        end_layer=shard.end_layer,
        n_layers=shard.n_layers,
    )


def _leave(code: ExitCode, why: str) -> NoReturn:
    # Not sys.exit: tearing down the interpreter under a busy MLX can hang.
    _log.info("%s; exit code %d", why, code)
    sys.stderr.flush()
    os._exit(code)


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    _log.critical("a service thread failed", exc_info=failed.exc_value)
    _leave(ExitCode.CRASHED, "a service thread failed")
