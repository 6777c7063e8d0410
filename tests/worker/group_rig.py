"""Several workers in one process that share a state and ask each other; real runner processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skulkd.cluster.replica import Replica
from skulkd.runner.protocol import GenerationOptions
from skulkd.wire.cards import ModelCard
from skulkd.wire.diagnostics import RunnerSupervisorDiagnostics
from skulkd.wire.events import Event, InstanceCreated, InstanceDeleted, RunnerStatusUpdated
from skulkd.wire.ids import InstanceId, NodeId, RunnerId
from skulkd.wire.instances import Host, Instance, MlxRingInstance
from skulkd.wire.runners import RunnerFailed, RunnerReady, RunnerRunning, RunnerStatus
from skulkd.wire.shards import (
    PipelineShardMetadata,
    ShardAssignments,
    ShardMetadata,
    TensorShardMetadata,
)
from skulkd.worker.group_addresses import RankSecurity
from skulkd.worker.options import CrashPolicy, GroupLimits, RunnerTimeouts, StopSteps, WorkerOptions
from skulkd.worker.process import Spawn
from skulkd.worker.task_stream import TaskStream
from skulkd.worker.worker import Worker, WorkerDeps
from tests.peer_mesh import MeshPeers, peer_mesh
from tests.worker.rig import DEADLINE_S, MemoryLibrary, a_card, a_request, eventually

# A node is lost when it is gone, not when this machine is slow.
LIMITS = GroupLimits(heartbeat_s=0.2, request_s=20, follow_s=60, lease_s=120, settle_s=20)
OPTIONS = WorkerOptions(
    timeouts=RunnerTimeouts(poll_s=0.1),
    stop=StopSteps(ask_s=0.5, term_s=0.5, kill_s=10),
    crashes=CrashPolicy(first_delay_s=0.01),
    group=LIMITS,
)


def a_group(
    nodes: Sequence[NodeId], card: ModelCard | None = None, *, tensor: bool = False
) -> Instance:
    card = card or a_card()
    size = len(nodes)
    cuts = [card.n_layers * rank // size for rank in range(size + 1)]

    def shard(rank: int) -> ShardMetadata:
        kind = TensorShardMetadata if tensor else PipelineShardMetadata
        return kind(
            model_card=card,
            device_rank=rank,
            world_size=size,
            start_layer=0 if tensor else cuts[rank],
            end_layer=card.n_layers if tensor else cuts[rank + 1],
            n_layers=card.n_layers,
        )

    def host(seen_by: int, rank: int) -> Host:
        return Host(ip="0.0.0.0" if seen_by == rank else "127.0.0.1", port=1)

    return MlxRingInstance(
        instance_id=InstanceId("instance-of-several"),
        shard_assignments=ShardAssignments(
            model_id=card.model_id,
            runner_to_shard={RunnerId(f"runner-{rank}"): shard(rank) for rank in range(size)},
            node_to_runner={node: RunnerId(f"runner-{rank}") for rank, node in enumerate(nodes)},
        ),
        hosts_by_node={
            node: [host(own, rank) for rank in range(size)] for own, node in enumerate(nodes)
        },
        ephemeral_port=1,
    )


@dataclass
class GroupRig:
    peers: list[MeshPeers]
    workers: list[Worker] = field(default_factory=list)
    replica: Replica = field(default_factory=Replica)
    events: list[Event] = field(default_factory=list)

    @property
    def nodes(self) -> list[NodeId]:
        return [peer.node_id for peer in self.peers]

    def publish(self, event: Event) -> None:
        self.events.append(event)
        self.replica.apply(event, len(self.events) - 1)
        for worker in self.workers:
            worker.notify()

    def place(self, card: ModelCard | None = None, *, tensor: bool = False) -> InstanceId:
        instance = a_group(self.nodes, card, tensor=tensor)
        self.publish(InstanceCreated(instance=instance))
        return instance.instance_id

    def delete(self, instance_id: InstanceId) -> None:
        self.publish(InstanceDeleted(instance_id=instance_id))

    def statuses(self) -> list[RunnerStatus | None]:
        return [
            self.replica.state.runners.get(RunnerId(f"runner-{rank}"))
            for rank in range(len(self.peers))
        ]

    def record(self, rank: int) -> RunnerSupervisorDiagnostics:
        (found,) = self.workers[rank].diagnostics()
        return found

    def pid(self, rank: int) -> int:
        pid = self.record(rank).pid
        assert pid is not None
        return pid

    def live_pids(self) -> set[int]:
        return {pid for worker in self.workers for pid in worker.runner_pids()}

    async def all_reach(self, kind: type[RunnerStatus]) -> None:
        await eventually(
            lambda: all(isinstance(status, kind) for status in self.statuses()),
            f"all ranks to be {kind.__name__}, they are {self.statuses()}",
        )

    async def all_serve(self) -> None:
        await eventually(
            lambda: all(isinstance(s, RunnerReady | RunnerRunning) for s in self.statuses()),
            "all ranks to serve",
        )

    async def rank_reaches(self, rank: int, kind: type[RunnerStatus]) -> None:
        """Looked at where it happens, which may be before the state has it."""
        await eventually(
            lambda: any(r.status_kind == kind.__name__ for r in self.workers[rank].diagnostics()),
            f"rank {rank} to be {kind.__name__}",
        )

    async def served_again(self, old: set[int]) -> None:
        """Until all ranks serve in processes that were not there before."""
        await eventually(
            lambda: (
                len(self.live_pids() - old) == len(self.peers)
                and all(isinstance(s, RunnerReady | RunnerRunning) for s in self.statuses())
            ),
            "the group to serve again in new processes",
        )

    async def fails(self, words: str) -> str:
        """The first reason that names these words; it may have been replaced since."""

        def found() -> str | None:
            for event in self.events:
                status = event.runner_status if isinstance(event, RunnerStatusUpdated) else None
                reason = status.error_message if isinstance(status, RunnerFailed) else None
                if reason is not None and words in reason:
                    return reason
            return None

        return await eventually(found, f"a rank to fail with: {words}")

    async def ask(self, instance_id: InstanceId, text: str, **params: Any) -> TaskStream:
        task = a_request(instance_id, text, **params)
        return await self.workers[0].submit(task, GenerationOptions())


@asynccontextmanager
async def group_of(
    log_dir: Path,
    spawns: Sequence[Spawn | None],
    options: WorkerOptions = OPTIONS,
    library: Any = None,
    memory: Any = None,
    files: Any = None,
) -> AsyncIterator[GroupRig]:
    """As many nodes as ways to start runners; all stop, with what they started."""
    rig = GroupRig(peer_mesh(*(f"node-{number}" for number in range(len(spawns)))))
    loops = []
    for peers, spawn in zip(rig.peers, spawns, strict=True):
        deps = WorkerDeps(
            library or MemoryLibrary(),
            log_dir / peers.node_id,
            peers=peers,
            security=RankSecurity("a secret of these tests"),
            spawn=spawn,
            memory=memory,
            files=files,
        )
        worker = Worker(
            node_id=peers.node_id,
            state=lambda: rig.replica.state,
            publish=rig.publish,
            deps=deps,
            options=options,
        )
        rig.workers.append(worker)
        loops.append(asyncio.create_task(worker.run()))
    try:
        yield rig
    finally:
        quick = StopSteps(ask_s=0.2, term_s=0.2, kill_s=10)
        await asyncio.gather(*(worker.stop(quick) for worker in rig.workers))
        await asyncio.wait(loops, timeout=DEADLINE_S)
        for loop in loops:
            assert loop.cancelled() or loop.exception() is None


async def group_ready(rig: GroupRig) -> InstanceId:
    instance_id = rig.place()
    await rig.all_reach(RunnerReady)
    return instance_id
