"""`skulkd` and `skulkctl` as processes of their own, without a second of imports for each.

`Popen` and `run` are those of `subprocess`. For `python -m skulkd …` and `python -m skulkctl …`
they ask a server that has imported everything and has no threads to fork. The fork is a process
like any other: own pid, descriptors, environment, working directory, session and signals, and it
ends as an interpreter ends. Whatever only a new interpreter can do is left to a new one: other
commands, other settings of the interpreter, other systems than Linux, and `subprocess` itself.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import inspect
import os
import pickle
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[1]
MODULES = ("skulkd", "skulkctl")
# Read by the interpreter or the C library when a process starts, and never again.
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "MALLOC_")
# The server's, as it was before any test changed its own. Users have no such buffering.
_ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
_ENVIRON.pop("PYTHONUNBUFFERED", None)
_MAX_ORDER_BYTES = 128 * 1024
_STANDARD_FDS = 3
_PR_SET_PDEATHSIG = 1
# What both programs import on their way to the first answer. Nothing that reads the environment
# while it is imported: that of the server is not the child's.
_IMPORTS = ("skulkd.node", "skulkctl.main", "skulkctl.cli.root", "httpx", "rich.table")


@dataclass(frozen=True)
class _Order:
    """What to become; the descriptors travel beside it."""

    command: tuple[str, ...]
    cwd: str
    environ: dict[str, str]
    new_session: bool
    prepare: Callable[[], None] | None

    @property
    def module(self) -> str:
        return self.command[2]


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """`subprocess.Popen`; only where the process comes from differs. `preexec_fn` is pickled."""

    _status: int | None = None
    """Gets the exit code; it has none when the process is `subprocess`'s own child."""

    def _execute_child(self, *given: Any) -> None:
        base = super()._execute_child
        wanted = inspect.signature(base).bind(*given).arguments
        order = _order(wanted)
        if order is None:
            base(*given)
            return
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        pipes = [wanted[name] for name in names]
        theirs = [pipes[0], pipes[3], pipes[5]]
        standard = [own if fd == -1 else fd for own, fd in enumerate(theirs)]
        self._status, written = os.pipe()
        weakref.finalize(self, os.close, self._status)
        try:
            self.pid = _server().fork(order, [*standard, written])
        finally:
            os.close(written)
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _internal_poll(self, *given: Any, **more: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(*given, **more)
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        if self._status is None:
            return super()._wait(timeout)
        code = self._ended(None if timeout is None else timeout * 1000)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout_ms: float | None) -> int | None:
        """The exit code, once it is known."""
        if self.returncode is None and self._status is not None:
            status = select.poll()
            status.register(self._status, select.POLLIN)
            if status.poll(timeout_ms):
                with self._waitpid_lock:
                    self._read_status(self._status)
        return self.returncode

    def _read_status(self, status: int) -> None:
        if self.returncode is None:
            said = os.read(status, 16)
            # Without its server a child ends too: by SIGKILL.
            self.returncode = int(said) if said else -signal.SIGKILL


def run(
    command: Sequence[str], *, input: Any = None, timeout: float | None = None, **settings: Any
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run(…, capture_output=True)`."""
    stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
    streams = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    with Popen(command, **streams) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def die_with_parent() -> None:
    """For a child, before it becomes what it is for."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _order(wanted: Mapping[str, Any]) -> _Order | None:
    """None when this needs a new interpreter."""
    command = wanted["args"]
    environ = dict(os.environ if wanted["env"] is None else wanted["env"])
    if (
        sys.platform != "linux"
        or list(command[:2]) != [sys.executable, "-m"]
        or command[2] not in MODULES
        or wanted["pass_fds"]
        or _read_at_start(environ) != _read_at_start(_ENVIRON)
    ):
        return None
    return _Order(
        tuple(map(str, command)),
        str(Path(wanted["cwd"] or ".").absolute()),
        environ,
        wanted["start_new_session"],
        wanted["preexec_fn"],
    )


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environ.items() if key.startswith(_READ_AT_START)}


class _Server:
    """The server as the tests see it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
                cwd=ROOT,
                env=_ENVIRON,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, no lock
            )

    def fork(self, order: _Order, fds: Sequence[int]) -> int:
        socket.send_fds(self._control, [pickle.dumps(order)], fds)
        answer = self._control.recv(64)
        if not answer:
            raise OSError(f"the fork server has ended with {self._process.wait()}")
        return int(answer)

    def close(self) -> None:
        self._control.close()
        self._process.wait()


@functools.cache
def _server() -> _Server:
    server = _Server()
    atexit.register(server.close)
    return server


# --- the server's own process ---


class _Forks:
    """Forks at each order, and writes the exit code of each child into its pipe."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._statuses: dict[int, int] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()

    def serve(self) -> _Order | None:
        """Returns in each child, and with None when the tests have gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
                self._reap()
            if self._control in ready:
                packet, fds, _, _ = socket.recv_fds(
                    self._control, _MAX_ORDER_BYTES, _STANDARD_FDS + 1
                )
                if not packet:
                    return None
                if self._fork(fds):
                    return pickle.loads(packet)

    def _fork(self, fds: list[int]) -> bool:
        """Whether this is the child."""
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - no Path of it is needed
        assert threads == 1, f"{threads} threads: not safe to fork"
        pid = os.fork()
        if pid == 0:
            self._become_child(fds[:_STANDARD_FDS], fds[_STANDARD_FDS])
            return True
        self._statuses[pid] = fds[_STANDARD_FDS]
        for fd in fds[:_STANDARD_FDS]:
            os.close(fd)
        self._control.send(str(pid).encode())
        return False

    def _become_child(self, standard: list[int], status: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        self._control.close()
        for fd in (self._wake_read, self._wake_write, status, *self._statuses.values()):
            os.close(fd)
        # Received descriptors are above 2, where the server has its own three.
        for own, fd in enumerate(standard):
            os.dup2(fd, own)
            os.close(fd)

    def _reap(self) -> None:
        while self._statuses:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            fd = self._statuses.pop(pid)
            with contextlib.suppress(BrokenPipeError):  # nobody waits any more
                os.write(fd, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(fd)


def _become(order: _Order) -> None:
    """What a new interpreter would find."""
    die_with_parent()
    if order.new_session:
        os.setsid()
    os.chdir(order.cwd)
    if order.prepare is not None:
        order.prepare()
    os.environ.clear()
    os.environ.update(order.environ)
    sys.orig_argv[:] = order.command
    sys.argv[:] = ["-m", *order.command[3:]]
    sys.path[0] = order.cwd
    # How the standard streams are buffered depends on what they lead to.
    sys.stdin = sys.__stdin__ = _open_like(sys.stdin, 0, "r", -1)
    sys.stdout = sys.__stdout__ = _open_like(sys.stdout, 1, "w", 1 if os.isatty(1) else -1)
    sys.stderr = sys.__stderr__ = _open_like(sys.stderr, 2, "w", 1)


def _open_like(stream: TextIO, fd: int, mode: str, buffering: int) -> Any:
    coding = {"encoding": stream.encoding, "errors": stream.errors}
    return open(fd, mode, buffering, closefd=False, **coding)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in _IMPORTS:
        importlib.import_module(name)
    # Children share these objects; collecting garbage in them would copy every page.
    gc.collect()
    gc.freeze()
    order = _Forks(control).serve()
    if order is not None:
        _become(order)
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
