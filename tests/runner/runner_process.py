"""Real runner processes for tests: started or forked, driven through their pipes, always ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from skulkd.runner.framing import FrameSplitter, write_all
from skulkd.runner.protocol import (
    Ack,
    Configure,
    FromRunner,
    GenerationOptions,
    Output,
    Phase,
    Pulse,
    RunnerOptions,
    RunTask,
    Status,
    TaskStatus,
    ToRunner,
    decode_from_runner,
    encode,
)
from skulkd.runner.zygote_client import Zygote
from skulkd.store.cards.toml import card_from_toml
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, RunnerId, TaskId
from skulkd.wire.runners import RunnerFailed, RunnerReady
from skulkd.wire.shards import PipelineShardMetadata
from skulkd.wire.tasks import (
    BaseTask,
    InputMessage,
    LoadModel,
    Shutdown,
    StartWarmup,
    TextGeneration,
    TextGenerationTaskParams,
)

ROOT = Path(__file__).parents[2]
DEADLINE_S = 300.0
INSTANCE = InstanceId("inst-1")
M = TypeVar("M")


def runner_environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "MLX_DISABLE_COMPILE": "1"}


@dataclass
class Answer:
    """A finished request as a client would see it."""

    status: TaskStatus
    outputs: list[Output]

    def text(self, choice: int = 0) -> str:
        return "".join(item.text for item in self.items(choice))

    def reasoning(self, choice: int = 0) -> str:
        return "".join(item.reasoning for item in self.items(choice))

    def items(self, choice: int = 0) -> list[Any]:
        return [item for output in self.outputs for item in output.items if item.choice == choice]

    def finish_reason(self, choice: int = 0) -> str | None:
        return next((item.finish_reason for item in self.items(choice) if item.finish_reason), None)

    @property
    def usage(self) -> Any:
        return self.outputs[-1].usage

    @property
    def stats(self) -> Any:
        return self.outputs[-1].stats


@dataclass
class Runner:
    """One runner and everything it said so far."""

    pid: int
    log: Path
    write_fd: int
    read_fd: int
    wait_exit: Callable[[], int]
    acknowledge: bool = True
    heard: list[FromRunner] = field(default_factory=list)
    _splitter: FrameSplitter = field(default_factory=FrameSplitter)
    _read: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000_000)))

    def send(self, message: ToRunner) -> None:
        write_all(self.write_fd, encode(message))

    def configure(self, model: Path, shard: dict[str, Any] | None = None, **options: Any) -> None:
        self.send(
            Configure(
                node_id=NodeId("node-1"),
                runner_id=RunnerId("run-1"),
                instance_id=INSTANCE,
                model_path=str(model),
                shard=shard_of(model, **(shard or {})),
                options=RunnerOptions(**options),
            )
        )

    def receive(self) -> FromRunner | None:
        """The next message nobody has taken yet; None when the runner closed its pipe."""
        deadline = time.monotonic() + DEADLINE_S
        while self._read >= len(self.heard):
            ready, _, _ = select.select([self.read_fd], [], [], deadline - time.monotonic())
            assert ready, f"the runner was silent for {DEADLINE_S:g} s; log: {self.log_text()}"
            data = os.read(self.read_fd, 65536)
            if not data:
                return None
            for frame in self._splitter.feed(data):
                message = decode_from_runner(frame)
                self.heard.append(message)
                if self.acknowledge and isinstance(message, Phase) and message.sequence:
                    self.send(Ack(sequence=message.sequence))
        self._read += 1
        return self.heard[self._read - 1]

    def until(self, kind: type[M], condition: Callable[[M], bool] = lambda _: True) -> M:
        """Read on until a message of this kind fits; fails when the runner ends first."""
        deadline = time.monotonic() + DEADLINE_S
        while (message := self.receive()) is not None:
            if isinstance(message, kind) and condition(message):
                return message
            if not isinstance(message, Pulse):
                deadline = time.monotonic() + DEADLINE_S
            assert time.monotonic() < deadline, f"it has a pulse only; log: {self.log_text()}"
        raise AssertionError(f"the runner ended first; log: {self.log_text()}")

    def drain(self) -> list[FromRunner]:
        """Everything up to the end of the pipe."""
        while self.receive() is not None:
            continue
        return self.heard

    def run(self, task: BaseTask, extra: GenerationOptions | None = None) -> None:
        self.send(RunTask.model_validate({"task": task, "generation": extra}))

    def load(self) -> None:
        self.run(LoadModel(task_id=TaskId("load"), instance_id=INSTANCE))

    def become_ready(self) -> None:
        self.load()
        self.run(StartWarmup(task_id=TaskId("warmup"), instance_id=INSTANCE))
        status = self.until(Status, lambda m: isinstance(m.status, RunnerReady | RunnerFailed))
        assert isinstance(status.status, RunnerReady), status

    def ask(
        self,
        text: str = "hello",
        extra: GenerationOptions | None = None,
        messages: list[dict[str, Any]] | None = None,
        **params: Any,
    ) -> TaskId:
        """Send a chat request; greedy and short unless the test says otherwise."""
        task_id = TaskId(f"task-{next(self._numbers)}")
        values = {"temperature": 0.0, "max_output_tokens": 24, **params}
        task = TextGeneration(
            task_id=task_id,
            instance_id=INSTANCE,
            command_id=CommandId(f"command-{task_id}"),
            task_params=TextGenerationTaskParams(
                model=ModelId("skulk/tiny-llama"),
                input=[InputMessage(role="user", content=text)],
                chat_template_messages=messages,
                **values,
            ),
        )
        self.run(task, extra)
        return task_id

    def answer(self, task_id: TaskId) -> Answer:
        """Wait for the end of a request and collect what was said for it."""
        said = [m for m in self.heard[: self._read] if isinstance(m, TaskStatus)]
        final = next((m for m in said if _ends(m, task_id)), None)
        if final is None:
            final = self.until(TaskStatus, lambda m: _ends(m, task_id))
        outputs = [m for m in self.heard if isinstance(m, Output) and m.task_id == task_id]
        return Answer(final, outputs)

    def chat(self, text: str = "hello", **how: Any) -> Answer:
        return self.answer(self.ask(text, **how))

    def entries(self, task_id: TaskId | None = None) -> list[Phase]:
        phases = [m for m in self.heard if isinstance(m, Phase)]
        return [m for m in phases if task_id is None or m.entry.task_id == task_id]

    def forget(self) -> None:
        """Drop the messages that were taken, so that a long run does not collect them."""
        del self.heard[: self._read]
        self._read = 0

    def stop(self) -> int:
        self.run(Shutdown(task_id=TaskId("stop"), instance_id=INSTANCE, runner_id=RunnerId("r")))
        self.drain()
        return self.wait_exit()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def close(self) -> None:
        for fd in (self.write_fd, self.read_fd):
            os.close(fd)


def _ends(report: TaskStatus, task_id: TaskId) -> bool:
    return report.task_id == task_id and report.status in ("Complete", "Failed", "Cancelled")


def shard_of(model: Path, **changes: Any) -> PipelineShardMetadata:
    """The whole model as one shard."""
    card = card_from_toml((model / "card.toml").read_text(), "card.toml")
    whole = {"device_rank": 0, "world_size": 1, "start_layer": 0, "end_layer": card.n_layers}
    return PipelineShardMetadata(model_card=card, n_layers=card.n_layers, **{**whole, **changes})


class ForkServer:
    """The zygote, spoken to by hand: tests get runners without paying for imports each time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, (folder / "zygote.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "skulkd.runner.zygote", "--fd", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=runner_environ(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._control.settimeout(DEADLINE_S)
        self._codes: dict[int, int] = {}
        self._count = 0
        assert "ready" in self._hear()

    def fork(self, **environ: str) -> Runner:
        self._count += 1
        log = self._folder / f"runner{self._count}.log"
        their_in, our_out = os.pipe()
        our_in, their_out = os.pipe()
        log_fd = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        packet = json.dumps({"id": self._count, "env": environ}).encode()
        socket.send_fds(self._control, [packet], [their_in, their_out, log_fd])
        for fd in (their_in, their_out, log_fd):
            os.close(fd)
        while (message := self._hear()).get("id") != self._count:
            continue
        pid = message["pid"]
        return Runner(pid, log, our_out, our_in, lambda: self._exit_code(pid))

    def _exit_code(self, pid: int) -> int:
        while pid not in self._codes:
            self._hear()
        return self._codes[pid]

    def _hear(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._control.recv(65536))
        if "ended" in message:
            self._codes[message["ended"]] = message["code"]
        return message

    def end(self, runner: Runner) -> None:
        """Make sure it is gone, whatever the test did."""
        if runner.pid not in self._codes:
            # It may have ended by itself, because another rank of its group was ended.
            with contextlib.suppress(ProcessLookupError):
                os.kill(runner.pid, signal.SIGKILL)
            self._exit_code(runner.pid)
        runner.close()

    def close(self) -> None:
        self._control.close()
        self._process.wait(DEADLINE_S)


class SpawnServer(ForkServer):
    """The same without forking, for systems where nothing can be forked: slower to start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: dict[int, subprocess.Popen[bytes]] = {}

    def fork(self, **environ: str) -> Runner:
        log = self._folder / f"runner{len(self._started)}.log"
        process, to_runner, from_runner = _start_runner(log, environ)
        self._started[process.pid] = process
        code = partial(process.wait, DEADLINE_S)
        return Runner(process.pid, log, to_runner, from_runner, code)

    def end(self, runner: Runner) -> None:
        process = self._started[runner.pid]
        process.kill()
        process.wait(DEADLINE_S)
        runner.close()

    def close(self) -> None:
        for process in self._started.values():
            process.kill()
            process.wait(DEADLINE_S)


def start_server(folder: Path) -> ForkServer:
    """What this system can do."""
    return ForkServer(folder) if Zygote.supported() else SpawnServer(folder)


def _start_runner(
    log: Path, environ: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int, int]:
    """The process, and the ends of its pipes that we write to and read from."""
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "skulkd.runner"),
                *("--in-fd", str(their_in), "--out-fd", str(their_out)),
            ],
            pass_fds=[their_in, their_out],
            env={**runner_environ(), **environ},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    os.close(their_in)
    os.close(their_out)
    return process, our_out, our_in


@contextmanager
def spawn(folder: Path) -> Iterator[Runner]:
    """`python -m skulkd.runner`, as a supervisor without a zygote starts it."""
    log = folder / "spawned.log"
    process, our_out, our_in = _start_runner(log, {})
    runner = Runner(process.pid, log, our_out, our_in, lambda: process.wait(DEADLINE_S))
    with process:
        try:
            yield runner
        finally:
            process.kill()
            runner.close()
