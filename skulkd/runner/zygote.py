"""A parent to fork runners from: everything imported, nothing ever computed. Linux only.

Importing takes seconds, a fork takes milliseconds. It must stay without threads and without any
MLX operation, else its children hang; it refuses to work when it has threads.
"""

import argparse
import gc
import importlib
import json
import os
import selectors
import signal
import socket
from pathlib import Path
from typing import Any

from skulkd.runner.exits import ExitCode
from skulkd.runner.parent_process import die_with_parent
from skulkd.runner.process import quiet_libraries, serve

MAX_PACKET_BYTES = 256 * 1024
_FDS_PER_RUNNER = 3
# What loading a model imports late; llama is what most models are built on.
_IMPORTS = (
    "skulkd.runner.session",
    "mlx_lm.models.llama",
    "mlx_lm.models.qwen2",
    "transformers.models.auto.tokenization_auto",
    "transformers.tokenization_utils_fast",
    "transformers.utils.chat_template_utils",
)


def thread_count() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


class ZygoteServer:
    """Answers one request per packet and reports every child that ends."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Serve until the daemon closes the socket; the kernel then ends the children too."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._tell({"ready": os.getpid()})
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
                self._reap()
            if self._control in ready and not self._answer():
                return

    def _tell(self, message: dict[str, Any]) -> None:
        self._control.send(json.dumps(message).encode())

    def _answer(self) -> bool:
        packet, fds, _, _ = socket.recv_fds(self._control, MAX_PACKET_BYTES, _FDS_PER_RUNNER)
        if not packet:
            return False
        request = json.loads(packet)
        if len(fds) != _FDS_PER_RUNNER:
            reply = {"id": request["id"], "error": f"{len(fds)} descriptors came along, not 3"}
        elif (threads := thread_count()) > 1:
            reply = {"id": request["id"], "error": f"{threads} threads: not safe to fork"}
        else:
            reply = {"id": request["id"], "pid": self._fork(request.get("env", {}), fds)}
        for fd in fds:
            os.close(fd)
        self._tell(reply)
        return True

    def _fork(self, environ: dict[str, str], fds: list[int]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            self._control.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            in_fd, out_fd, log_fd = fds
            os.dup2(log_fd, 1)
            os.dup2(log_fd, 2)
            os.close(log_fd)
            os.environ.update(environ)
            serve(in_fd, out_fd)
        finally:
            os._exit(ExitCode.CRASHED)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._tell({"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m skulkd.runner.zygote")
    parser.add_argument("--fd", type=int, required=True, help="socket to the daemon")
    control = socket.socket(fileno=parser.parse_args().fd)
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    quiet_libraries()
    for name in _IMPORTS:
        importlib.import_module(name)
    # Children share these objects; collecting garbage in them would copy every page.
    gc.collect()
    gc.freeze()
    ZygoteServer(control).run()


if __name__ == "__main__":
    main()
