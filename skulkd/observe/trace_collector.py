"""Collects the trace parts that ranks measure: stores them and sends them to the other nodes.

Every node of an instance has the whole trace, so it survives the loss of a node. If a rank
crashes, the parts it sent before are kept and the trace is partial.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from skulkd.observe.trace_files import BadTraceId, Part, TraceFiles
from skulkd.peers import PeerError, Peers
from skulkd.runner.protocol import TaskTrace
from skulkd.settings.problems import SettingsError
from skulkd.settings.running import RunningSettings
from skulkd.wire.ids import CommandId, NodeId, TaskId
from skulkd.wire.state import State
from skulkd.wire.tasks import BaseRequestTask
from skulkd.wire.tracing import TracePart

METHOD = "trace.part"
SHARE_DEADLINE_S = 5.0
FIRST_CLEANUP_S = 60.0
CLEANUP_INTERVAL_S = 3600.0

_log = logging.getLogger(__name__)


class TraceCollector:
    """`collect` does not block; `store` writes one part."""

    def __init__(self, files: TraceFiles, peers: Peers, state: Callable[[], State]) -> None:
        self.files = files
        self._peers = peers
        self._state = state
        self.jobs: set[asyncio.Task[None]] = set()
        """Parts that are being written and sent."""
        self._writing = asyncio.Lock()

    def collect(self, trace: TaskTrace) -> None:
        """Store and share what a rank of this node measured of a task."""
        command_id, others, size = self._placement_of(trace.task_id)
        part = TracePart(
            task_id=trace.task_id,
            rank=trace.rank,
            traces=trace.traces,
            command_id=command_id,
            world_size=max(size, trace.rank + 1),
        )
        job = asyncio.get_running_loop().create_task(self._share(part, others))
        self.jobs.add(job)
        job.add_done_callback(self.jobs.discard)

    async def store(self, part: TracePart) -> None:
        """Write a part; a failing disk loses this part only."""
        stored = Part(part.task_id, part.rank, part.traces, part.command_id, part.world_size)
        async with self._writing:
            try:
                await asyncio.to_thread(self.files.add, stored)
            except (OSError, BadTraceId) as error:
                _log.warning("a trace part could not be written: %s", error)

    def _placement_of(self, task_id: TaskId) -> tuple[CommandId | None, list[NodeId], int]:
        """The request's id, the other nodes of its instance, and the number of ranks."""
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

    async def _share(self, part: TracePart, others: list[NodeId]) -> None:
        await self.store(part)
        body = part.model_dump_json().encode()
        for node in others:
            try:
                await self._peers.ask(node, METHOD, body, deadline_s=SHARE_DEADLINE_S)
            except PeerError as error:
                _log.debug("trace part not sent to %s: %s", node, error)

    async def delete_expired(self, settings: RunningSettings) -> None:
        """Delete old traces every hour, until cancelled."""
        await asyncio.sleep(FIRST_CLEANUP_S)
        while True:
            days = await asyncio.to_thread(_retention_days, settings)
            deleted = await asyncio.to_thread(self.files.sweep, days, time.time())
            if deleted:
                _log.info("deleted %d traces older than %d days", deleted, days)
            await asyncio.sleep(CLEANUP_INTERVAL_S)


def _retention_days(settings: RunningSettings) -> int:
    """From the settings file as it is now; the value of the start when it cannot be read."""
    try:
        return settings.sources.load().config.tracing.retention_days
    except SettingsError:
        return settings.started.config.tracing.retention_days
