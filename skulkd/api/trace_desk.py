"""Where measured parts of traces arrive: kept here, and told to the other nodes of the placement.

So every node of a placement has the whole trace, and what one rank measured survives the death
of another. Of a rank that dies hard what it sent before is kept; the trace is then partial.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from skulkd.api.running_settings import RunningSettings
from skulkd.observe.trace_files import BadTraceId, Part, TraceFiles
from skulkd.peers import PeerError, Peers
from skulkd.runner.protocol import TaskTrace
from skulkd.settings.problems import SettingsError
from skulkd.wire.ids import CommandId, NodeId, TaskId
from skulkd.wire.state import State
from skulkd.wire.tasks import BaseRequestTask
from skulkd.wire.tracing import TracePart

METHOD = "trace.part"
TELL_S = 5.0
FIRST_SWEEP_S = 60.0
SWEEP_EVERY_S = 3600.0

_log = logging.getLogger(__name__)


class TraceDesk:
    """`took` may be called for every rank of this node; it does not wait."""

    def __init__(self, files: TraceFiles, peers: Peers, state: Callable[[], State]) -> None:
        self.files = files
        self._peers = peers
        self._state = state
        self._jobs: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    def took(self, trace: TaskTrace) -> None:
        """A rank of this node has measured its part of a task."""
        command_id, others, size = self._about(trace.task_id)
        part = TracePart(
            task_id=trace.task_id,
            rank=trace.rank,
            traces=trace.traces,
            command_id=command_id,
            world_size=max(size, trace.rank + 1),
        )
        job = asyncio.get_running_loop().create_task(self._spread(part, others))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def settled(self) -> None:
        """Wait until everything that was taken is kept and told."""
        while self._jobs:
            await asyncio.gather(*self._jobs)

    async def keep(self, part: TracePart) -> None:
        """Write a part; a disk that cannot take it costs this trace and nothing else."""
        kept = Part(part.task_id, part.rank, part.traces, part.command_id, part.world_size)
        async with self._turn:
            try:
                await asyncio.to_thread(self.files.add, kept)
            except (OSError, BadTraceId) as error:
                _log.warning("a trace was not kept: %s", error)

    def _about(self, task_id: TaskId) -> tuple[CommandId | None, list[NodeId], int]:
        """The request's id, the other nodes of its placement, and how many ranks there are."""
        state = self._state()
        task = state.tasks.get(task_id)
        if task is None:
            return None, [], 1
        command_id = task.command_id if isinstance(task, BaseRequestTask) else None
        instance = state.instances.get(task.instance_id)
        if instance is None:
            return command_id, [], 1
        nodes = instance.shard_assignments.node_to_runner
        others = [node for node in nodes if node != self._peers.node_id]
        return command_id, others, len(instance.shard_assignments.runner_to_shard)

    async def _spread(self, part: TracePart, others: list[NodeId]) -> None:
        await self.keep(part)
        body = part.model_dump_json().encode()
        for node in others:
            try:
                await self._peers.ask(node, METHOD, body, deadline_s=TELL_S)
            except PeerError as error:
                _log.debug("a part of a trace did not reach %s: %s", node, error)

    async def keep_tidy(self, settings: RunningSettings) -> None:
        """Delete old traces, every hour, until cancelled."""
        await asyncio.sleep(FIRST_SWEEP_S)
        while True:
            days = await asyncio.to_thread(_retention_days, settings)
            gone = await asyncio.to_thread(self.files.sweep, days, time.time())
            if gone:
                _log.info("%d traces older than %d days were deleted", gone, days)
            await asyncio.sleep(SWEEP_EVERY_S)


def _retention_days(settings: RunningSettings) -> int:
    """As the file says now; what was in force at the start when it cannot be read."""
    try:
        return settings.sources.load().config.tracing.retention_days
    except SettingsError:
        return settings.started.config.tracing.retention_days
