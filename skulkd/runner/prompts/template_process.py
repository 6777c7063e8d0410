"""Renders chat templates in a child process with limits on CPU time and memory.

A template comes with the model's files and is a small program: one that loops or allocates
without end must fail its own request, not the runner. The child is forked before the runner has
threads, and replaces its worker when a limit ends it. Must not import MLX.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from skulkd.runner.errors import BadRequest
from skulkd.runner.framing import FrameError, FrameReader, pack, write_all
from skulkd.runner.parent_process import die_with_parent

# CPU time, not wall time: a busy machine must not fail a request.
CPU_LIMIT_S = 5.0
MEMORY_LIMIT_BYTES = 512 * 1024**2

# What a template raises when the messages do not suit it.
_TEMPLATE_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
_STANDARD_FDS = (0, 1, 2)
_OUT_OF_MEMORY = 12


@dataclass(frozen=True, slots=True)
class TemplateJob:
    """One rendering. `variables` are the special tokens and the template's own switches."""

    template: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    add_generation_prompt: bool
    variables: dict[str, Any]


Renderer = Callable[[TemplateJob], str]
"""Raises BadRequest when the template refuses the messages or exceeds a limit."""


def render_here(job: TemplateJob) -> str:
    """Render in this process, without limits. Raises BadRequest."""
    from jinja2 import TemplateError
    from transformers.utils import chat_template_utils

    # Its annotations are narrower than what it takes and returns.
    render: Any = chat_template_utils.render_jinja_template
    try:
        texts, _ = render(
            conversations=[job.messages],
            tools=job.tools,
            chat_template=job.template,
            add_generation_prompt=job.add_generation_prompt,
            **job.variables,
        )
    except (TemplateError, RecursionError, *_TEMPLATE_ERRORS) as error:
        raise BadRequest(f"the chat template rejected the messages: {error}") from error
    except MemoryError as error:
        raise BadRequest(_over_memory()) from error
    return str(texts[0])


class TemplateProcess:
    """The runner's end of the connection to the child."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = FrameReader(connection.fileno())

    @classmethod
    def start(cls, close: Iterable[int] = ()) -> "TemplateProcess":
        """Fork the child; it closes `close`, so that its life holds no pipe of the runner open."""
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            run_child(theirs.fileno(), close)
        theirs.close()
        return cls(ours)

    def render(self, job: TemplateJob) -> str:
        """Wait for the child's answer. Raises BadRequest."""
        try:
            request = pack(json.dumps(asdict(job)).encode())
        except FrameError as error:
            raise BadRequest(f"the messages are too large for a chat template: {error}") from error
        write_all(self._connection.fileno(), request)
        frames = self._frames.read()
        if frames is None:
            raise RuntimeError("the chat template process ended")
        answer = json.loads(frames[0])
        if "error" in answer:
            raise BadRequest(answer["error"])
        return str(answer["text"])

    def close(self) -> None:
        """The child exits when it reads the end of the connection."""
        self._connection.close()


def run_child(fd: int, close: Iterable[int] = ()) -> NoReturn:
    """Render jobs from this connection until its other end is closed."""
    code = 1
    try:
        die_with_parent()
        _detach(close)
        with contextlib.suppress(ImportError):
            # Seconds of imports, shared by every worker; a failure is reported by the first job.
            import transformers.utils.chat_template_utils  # noqa: F401
        while (ended := _run_worker(fd)) is not None:
            _answer(fd, error=ended)
        code = 0
    finally:
        os._exit(code)


def _detach(close: Iterable[int]) -> None:
    for fd in close:
        os.close(fd)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in _STANDARD_FDS:
        os.dup2(null, fd)
    os.close(null)


def _run_worker(fd: int) -> str | None:
    """Serve until the runner closes the connection (None) or a limit ends the worker (why)."""
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            _limit_memory()
            _work(fd)
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return None
    if code == -signal.SIGPROF:
        return _over_time()
    if code == _OUT_OF_MEMORY:
        return _over_memory()
    return f"the chat template could not be rendered: its process ended with {code}"


def _work(fd: int) -> None:
    frames = FrameReader(fd)
    while (batch := frames.read()) is not None:
        # The runner sends the next job only after the answer to this one.
        job = TemplateJob(**json.loads(batch[0]))
        signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
        try:
            text = render_here(job)
        except BadRequest as error:
            _answer(fd, error=str(error))
        else:
            _answer(fd, text=text)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _answer(fd: int, **content: str) -> None:
    try:
        frame = pack(json.dumps(content).encode())
    except FrameError:
        frame = pack(json.dumps({"error": _over_memory()}).encode())
    write_all(fd, frame)


def _limit_memory() -> None:
    if sys.platform != "linux":
        # Other kernels do not enforce an address space limit; the CPU limit still holds.
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _over_time() -> str:
    return f"the chat template used more than {CPU_LIMIT_S:g} s of CPU time"


def _over_memory() -> str:
    return f"the chat template used more than {MEMORY_LIMIT_BYTES // 1024**2} MiB of memory"
