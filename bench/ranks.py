"""Runners as ranks for measurements: started like a supervisor does, driven over their pipes.

No daemon and no HTTP, so that what is compared is the work of the runners and nothing else.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.sse_client import NO_END, Run
from skulkd.runner.framing import FrameReader, write_all
from skulkd.runner.protocol import (
    Ack,
    Configure,
    FromRunner,
    GenerationOptions,
    Output,
    Phase,
    RankLinks,
    RunnerOptions,
    RunTask,
    Status,
    TaskStatus,
    TlsPaths,
    decode_from_runner,
    encode,
)
from skulkd.store.cards.toml import card_from_toml
from skulkd.wire.ids import CommandId, InstanceId, ModelId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import Host
from skulkd.wire.runners import RunnerConnected, RunnerFailed, RunnerReady
from skulkd.wire.shards import PipelineShardMetadata
from skulkd.wire.tasks import (
    BaseTask,
    ConnectToGroup,
    InputMessage,
    LoadModel,
    StartWarmup,
    TextGeneration,
    TextGenerationTaskParams,
)

INSTANCE = InstanceId("bench")
DEADLINE_S = 300.0


class Rank:
    """One runner process; a thread notes when each of its messages came."""

    def __init__(self, environ: dict[str, str]) -> None:
        their_in, self._out = os.pipe()
        self._in, their_out = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "skulkd.runner", "--in-fd", str(their_in), "--out-fd",
             str(their_out)],
            pass_fds=[their_in, their_out], env=environ, stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(their_in)
        os.close(their_out)
        self.heard: list[tuple[float, FromRunner]] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Configure | RunTask | Ack) -> None:
        write_all(self._out, encode(message))

    def run(self, task: BaseTask, extra: GenerationOptions | None = None) -> None:
        self.send(RunTask.model_validate({"task": task, "generation": extra}))

    def wait_status(self, kind: type) -> None:
        wanted = (kind, RunnerFailed)
        with self._changed:
            self._changed.wait_for(lambda: isinstance(self._status(), wanted), DEADLINE_S)
            if not isinstance(self._status(), kind):
                raise SystemExit(f"error: rank {self.pid} is {self._status()}")

    def wait_ends(self, task_ids: set[TaskId]) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: task_ids <= self._ended(), DEADLINE_S):
                raise SystemExit("error: requests did not end")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _status(self) -> object:
        said = [m.status for _, m in self.heard if isinstance(m, Status)]
        return said[-1] if said else None

    def _ended(self) -> set[TaskId]:
        ends = ("Complete", "Failed", "Cancelled")
        said = (m for _, m in self.heard if isinstance(m, TaskStatus))
        return {m.task_id for m in said if m.status in ends}

    def _read(self) -> None:
        reader = FrameReader(self._in)
        while frames := reader.read():
            now = time.perf_counter()
            messages = [decode_from_runner(frame) for frame in frames]
            for message in messages:
                if isinstance(message, Phase) and message.sequence:
                    self.send(Ack(sequence=message.sequence))
            with self._changed:
                self.heard += [(now, m) for m in messages if not isinstance(m, Phase)]
                self._changed.notify_all()


class Ranks:
    """A group, or one runner alone, that answers several requests at once."""

    def __init__(self, ranks: list[Rank], model: str) -> None:
        self.ranks = ranks
        self._model = ModelId(model)
        self._count = 0

    def ask(self, texts: list[str], max_tokens: int) -> tuple[list[Run], float]:
        """All of them at once, and the time until the last one ended."""
        tasks = [self._task(text, max_tokens) for text in texts]
        began = time.perf_counter()
        for task in tasks:
            for rank in self.ranks:
                bias = {str(token): value for token, value in NO_END.items()}
                rank.run(task, GenerationOptions(logit_bias=bias))
        for rank in self.ranks:
            rank.wait_ends({task.task_id for task in tasks})
        outputs = [(at, m) for at, m in self.ranks[0].heard if isinstance(m, Output)]
        for rank in self.ranks:
            rank.heard.clear()
        runs = [_run(task.task_id, outputs, began) for task in tasks]
        return runs, max(run.last_s for run in runs)

    def _task(self, text: str, max_tokens: int) -> TextGeneration:
        self._count += 1
        return TextGeneration(
            task_id=TaskId(f"bench-{self._count}"),
            instance_id=INSTANCE,
            command_id=CommandId(f"command-{self._count}"),
            task_params=TextGenerationTaskParams(
                model=self._model,
                input=[InputMessage(role="user", content=text)],
                temperature=0.0,
                max_output_tokens=max_tokens,
            ),
        )


def _run(task_id: TaskId, outputs: list[tuple[float, Output]], began: float) -> Run:
    mine = [(at, m) for at, m in outputs if m.task_id == task_id]
    usage = mine[-1][1].usage
    text = "".join(item.text for _, m in mine for item in m.items)
    tokens = usage.completion_tokens if usage is not None else 0
    return Run(text, mine[0][0] - began, mine[-1][0] - began, tokens)


def free_hosts(count: int) -> list[Host]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    hosts = [Host(ip="127.0.0.1", port=one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return hosts


@contextmanager
def ranks(
    directory: Path,
    count: int,
    environ: dict[str, str],
    cores: int = 1,
    tls: TlsPaths | None = None,
) -> Iterator[Ranks]:
    """A ready pipeline of this many runners, on so many cores each; 0: all of them."""
    card = card_from_toml((directory / "card.toml").read_text(), "card.toml")
    hosts = free_hosts(count) if count > 1 else None
    started = [Rank(environ) for _ in range(count)]
    try:
        for number, rank in enumerate(started):
            edges = (card.n_layers * number // count, card.n_layers * (number + 1) // count)
            rank.send(
                Configure(
                    node_id=NodeId(f"node-{number}"),
                    runner_id=RunnerId(f"run-{number}"),
                    instance_id=INSTANCE,
                    model_path=str(directory),
                    shard=PipelineShardMetadata(
                        model_card=card, n_layers=card.n_layers, device_rank=number,
                        world_size=count, start_layer=edges[0], end_layer=edges[1],
                    ),
                    options=RunnerOptions(prefix_cache_bytes=0, cores=cores),
                    group=hosts,
                    links=RankLinks(
                        key="00" * 32, addresses=["127.0.0.1"], ring_address="127.0.0.1", tls=tls
                    ),
                )
            )  # fmt: skip
        _all(started, ConnectToGroup(task_id=TaskId("connect"), instance_id=INSTANCE),
             RunnerConnected if count > 1 else None)  # fmt: skip
        _all(started, LoadModel(task_id=TaskId("load"), instance_id=INSTANCE), None)
        _all(started, StartWarmup(task_id=TaskId("warm"), instance_id=INSTANCE), RunnerReady)
        yield Ranks(started, card.model_id)
    finally:
        for rank in started:
            rank.close()


def _all(started: list[Rank], task: BaseTask, until: type | None) -> None:
    if isinstance(task, ConnectToGroup) and until is None:
        return
    for rank in started:
        rank.run(task)
    for rank in started if until is not None else []:
        rank.wait_status(until or object)
