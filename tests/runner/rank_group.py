"""Several runners as the ranks of one group on loopback, driven like one."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skulkd.runner.protocol import (
    Cancel,
    Configure,
    GenerationOptions,
    Phase,
    RankLinks,
    RunnerOptions,
    Status,
    TaskTrace,
    TlsPaths,
)
from skulkd.wire.ids import CommandId, ModelId, NodeId, RunnerId, TaskId
from skulkd.wire.instances import Host
from skulkd.wire.runners import RunnerConnected, RunnerFailed, RunnerReady
from skulkd.wire.shards import PipelineShardMetadata, TensorShardMetadata
from skulkd.wire.tasks import (
    ConnectToGroup,
    InputMessage,
    Shutdown,
    TextGeneration,
    TextGenerationTaskParams,
)
from skulkd.wire.tracing import UNFINISHED
from tests.runner.runner_process import INSTANCE, Answer, Runner, shard_of

KEY = "5a" * 32


def free_hosts(count: int) -> list[Host]:
    """Addresses that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    hosts = [Host(ip="127.0.0.1", port=one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return hosts


def split(layers: int, ranks: int) -> list[tuple[int, int]]:
    """Uneven where it must be, as a placement over unequal machines is."""
    edges = [layers * rank // ranks for rank in range(ranks + 1)]
    return list(itertools.pairwise(edges))


@dataclass
class RankGroupOfRunners:
    ranks: list[Runner]
    hosts: list[Host]
    wrong_ways: dict[int, dict[int, Host]] = field(default_factory=dict)
    """By rank, addresses of others that do not lead there."""
    keys: dict[int, str] = field(default_factory=dict)
    """By rank, when it is not the key of the group."""
    tls: TlsPaths | None = None
    _count: int = 0

    def seen_by(self, rank: int) -> list[Host]:
        """Every rank's address as this rank has to dial it."""
        wrong = self.wrong_ways.get(rank, {})
        return [wrong.get(at, host) for at, host in enumerate(self.hosts)]

    @property
    def leader(self) -> Runner:
        return self.ranks[0]

    def configure(self, model: Path, *, tensor: bool = False, **options: Any) -> None:
        for rank, runner in enumerate(self.ranks):
            self.configure_rank(runner, rank, model, tensor=tensor, **options)

    def configure_rank(
        self, runner: Runner, rank: int, model: Path, *, tensor: bool = False, **options: Any
    ) -> None:
        whole = shard_of(model)
        size = len(self.hosts)
        kind = TensorShardMetadata if tensor else PipelineShardMetadata
        start, end = (0, whole.n_layers) if tensor else split(whole.n_layers, size)[rank]
        runner.send(
            Configure(
                node_id=NodeId(f"node-{rank}"),
                runner_id=RunnerId(f"run-{rank}"),
                instance_id=INSTANCE,
                model_path=str(model),
                shard=kind(
                    model_card=whole.model_card,
                    n_layers=whole.n_layers,
                    device_rank=rank,
                    world_size=size,
                    start_layer=start,
                    end_layer=end,
                ),
                options=RunnerOptions(**options),
                group=self.seen_by(rank),
                links=RankLinks(
                    key=self.keys.get(rank, KEY),
                    addresses=["127.0.0.1"],
                    ring_address="127.0.0.1",
                    tls=self.tls,
                ),
            )
        )

    def connect(self) -> None:
        for runner in self.ranks:
            runner.run(ConnectToGroup(task_id=TaskId("connect"), instance_id=INSTANCE))

    def become_ready(self) -> None:
        self.connect()
        for runner in self.ranks:
            status = runner.until(
                Status, lambda m: isinstance(m.status, RunnerConnected | RunnerFailed)
            )
            assert isinstance(status.status, RunnerConnected), status
        with ThreadPoolExecutor(len(self.ranks)) as pool:
            list(pool.map(Runner.become_ready, self.ranks))

    def ask(
        self,
        text: str = "hello",
        extra: GenerationOptions | None = None,
        *,
        only: list[Runner] | None = None,
        trace: bool = False,
        **params: Any,
    ) -> TaskId:
        """The same task for every rank, rank 0 first, unless only some are to get it."""
        self._count += 1
        task = task_of(TaskId(f"shared-{self._count}"), text, trace=trace, **params)
        for runner in self.ranks if only is None else only:
            runner.run(task, extra)
        return task.task_id

    def answer(self, task_id: TaskId) -> Answer:
        """Wait for the end of a request on every rank; what rank 0 said for it."""
        answers = [runner.answer(task_id) for runner in self.ranks]
        return answers[0]

    def chat(self, text: str = "hello", **how: Any) -> Answer:
        return self.answer(self.ask(text, **how))

    def cancel(self, task_id: TaskId) -> None:
        for runner in self.ranks:
            runner.send(Cancel(task_id=task_id))

    def rest(self) -> None:
        """Wait until every rank has nothing to do."""
        for runner in self.ranks:
            runner.until(Status, lambda m: isinstance(m.status, RunnerReady))

    def stop(self) -> list[int]:
        for runner in self.ranks:
            runner.run(
                Shutdown(task_id=TaskId("stop"), instance_id=INSTANCE, runner_id=RunnerId("r"))
            )
        for runner in self.ranks:
            runner.drain()
        return [runner.wait_exit() for runner in self.ranks]


def task_of(task_id: TaskId, text: str, *, trace: bool = False, **params: Any) -> TextGeneration:
    values = {"temperature": 0.0, "max_output_tokens": 24, **params}
    return TextGeneration(
        task_id=task_id,
        instance_id=INSTANCE,
        command_id=CommandId(f"command-{task_id}"),
        trace_enabled=trace,
        task_params=TextGenerationTaskParams(
            model=ModelId("skulk/tiny-llama"),
            input=[InputMessage(role="user", content=text)],
            **values,
        ),
    )


def marks(runner: Runner, task_id: TaskId | None = None) -> list[tuple[str, str, str | None]]:
    return [(p.entry.phase, p.entry.event, p.entry.detail) for p in runner.entries(task_id)]


def spans(runner: Runner, task_id: TaskId) -> TaskTrace:
    """What the rank measured in all; a slow task sends parts before it ends."""

    def is_whole(trace: TaskTrace) -> bool:
        return trace.task_id == task_id and trace.traces[-1].name != UNFINISHED

    return runner.until(TaskTrace, is_whole)


MakeGroup = Callable[..., RankGroupOfRunners]
__all__ = ["MakeGroup", "Phase", "RankGroupOfRunners", "free_hosts", "marks", "spans", "task_of"]
