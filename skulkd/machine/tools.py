"""Runs one operating-system tool with a time limit and a bound on its output.

The only place of this room that starts a process; it knows nothing of what the tools print.
"""

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import IO

MAX_OUTPUT_BYTES = 1 << 20
MAX_STDERR_BYTES = 4096

_running: set[subprocess.Popen[bytes]] = set()
_running_lock = threading.Lock()


class ToolError(Exception):
    """A tool gave no usable answer; the text says which tool and why."""


class ToolMissing(ToolError):
    """The tool is not installed or may not be started."""


class ToolTimeout(ToolError):
    """The tool was killed because it did not answer in time."""


class ToolFailed(ToolError):
    """The tool ended with a code other than 0; `output` is what it printed."""

    def __init__(self, tool: str, code: int, output: str) -> None:
        lines = output.strip().splitlines()
        reason = f": {lines[0].strip()}" if lines else ""
        super().__init__(f"{tool} failed with exit code {code}{reason}")
        self.code = code
        self.output = output


def run_tool(
    argv: Sequence[str], timeout_s: float, max_output_bytes: int = MAX_OUTPUT_BYTES
) -> str:
    """Return what the tool printed on stdout, in the C locale; raise ToolError otherwise."""
    deadline = time.monotonic() + timeout_s
    process = _start(argv)
    try:
        stdout, stderr = _read_outputs(process, deadline, max_output_bytes)
        if stdout is None:
            raise ToolTimeout(f"{argv[0]} did not answer within {timeout_s:g} s and was stopped")
        if len(stdout) > max_output_bytes:
            raise ToolError(f"{argv[0]} printed more than {max_output_bytes} bytes")
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise ToolTimeout(f"{argv[0]} did not end within {timeout_s:g} s") from None
    finally:
        _end(process)
    text = stdout.decode("utf-8", "replace")
    if code != 0:
        raise ToolFailed(argv[0], code, stderr.decode("utf-8", "replace").strip() or text)
    return text


def stop_running_tools() -> None:
    """Kill every tool that still runs, so that none outlives the daemon."""
    with _running_lock:
        for process in _running:
            if process.returncode is None:
                _kill_group(process)


def _start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    # Started and noted in one go, or a stop in between would leave it running.
    with _running_lock:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C", "LANG": "C"},
                # A group of its own: killing it also ends what the tool itself started.
                start_new_session=True,
            )
        except OSError as error:
            raise ToolMissing(f"{argv[0]} cannot be started: {error.strerror or error}") from error
        _running.add(process)
    return process


def _read_outputs(
    process: subprocess.Popen[bytes], deadline: float, max_output_bytes: int
) -> tuple[bytes | None, bytes]:
    """Read both pipes to their end; stdout is None when the deadline passed first."""
    pipes: list[IO[bytes]] = [pipe for pipe in (process.stdout, process.stderr) if pipe]
    taken = {pipe: bytearray() for pipe in pipes}
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            remaining = deadline - time.monotonic()
            ready = selector.select(remaining) if remaining > 0 else []
            if not ready:
                return None, bytes(taken[pipes[1]])
            for key, _ in ready:
                pipe = pipes[0] if key.fileobj is pipes[0] else pipes[1]
                chunk = os.read(pipe.fileno(), 65536)
                if not chunk:
                    selector.unregister(pipe)
                elif pipe is pipes[0]:
                    taken[pipe] += chunk
                elif len(taken[pipe]) < MAX_STDERR_BYTES:
                    taken[pipe] += chunk[:MAX_STDERR_BYTES]
            if len(taken[pipes[0]]) > max_output_bytes:
                break
    return bytes(taken[pipes[0]]), bytes(taken[pipes[1]])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave no process and no pipe behind, whatever happened before."""
    # Not poll(): a tool that ended may have left a child, and its group is ours until reaped.
    if process.returncode is None:
        _kill_group(process)
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    process.wait()
    with _running_lock:
        _running.discard(process)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # The group ended on its own between the check and the signal.
        return
