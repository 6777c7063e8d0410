"""What a screen may ask of the cluster: changes, and what is fetched only when it is looked at.

Each call may take seconds and raises CliError. The screens know no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skulkctl.verdict.ranks import Group, Rank

if TYPE_CHECKING:
    from skulkctl.daemon.client import AsyncDaemon
    from skulkd.wire.event_stream import EventLine
    from skulkd.wire.logs import LogLines
    from skulkd.wire.placement import PlaceInstanceParams, PlacementPreviewResponse
    from skulkd.wire.storage import ClusterStorage, PurgeRequest, PurgeResult
    from skulkd.wire.tracing import TraceItems, TraceResponse


class Reader:
    """What pages ask for besides the feed."""

    def __init__(self, daemon: AsyncDaemon) -> None:
        self._daemon = daemon

    async def log_lines(self, rank: Rank) -> list[str]:
        """The last lines that this rank's process printed."""
        from skulkd.wire.ids import RunnerId
        from skulkd.wire.logs import LogQuery

        query = LogQuery(runner_id=RunnerId(rank.runner_id))
        return [line.text for line in (await self._daemon.logs(rank.node_id, query)).lines]

    async def node_log(self, node_id: str | None, after: int | None) -> LogLines:
        """Lines of a node's daemon; those after a cursor, or the last ones."""
        from skulkd.wire.logs import LogQuery

        return await self._daemon.logs(node_id, LogQuery(after=after))

    async def storage(self) -> ClusterStorage:
        return await self._daemon.storage()

    async def stored(self) -> int:
        """How many bytes are in the shared store."""
        entries = (await self._daemon.store_registry()).entries
        return sum(entry.total_bytes for entry in entries)

    async def traces(self) -> TraceItems:
        return await self._daemon.traces()

    async def trace(self, task_id: str) -> TraceResponse:
        return await self._daemon.trace(task_id)

    async def events(self, since_s: float) -> AsyncIterator[EventLine]:
        """The events since then, and those to come."""
        from skulkd.wire.event_stream import EventQuery

        follow = await self._daemon.can_follow_events()
        query = EventQuery(since=since_s if follow else None, follow=follow)
        stream = await self._daemon.events(query)
        async with stream:
            async for event in stream:
                yield event

    async def models(self) -> list[str]:
        """The ids of all models that can be placed."""
        return [model.id for model in (await self._daemon.models()).data]

    async def previews(self, wanted: PlaceInstanceParams) -> PlacementPreviewResponse:
        return await self._daemon.previews(wanted, need_files=False)


class Actions:
    """What changes the cluster, and evidence, which is gathered before that."""

    def __init__(self, daemon: AsyncDaemon, directory: Path) -> None:
        self._daemon = daemon
        self._directory = directory

    async def capture(self, group: Group, ranks: Sequence[Rank]) -> Path:
        """Write a bundle of these ranks; where it is."""
        from skulkctl.capture.bundles import gather, limit_s, write_bundle

        evidence = await self._daemon.within(limit_s()).run(gather(group, ranks))
        return await asyncio.to_thread(write_bundle, evidence, self._directory)

    async def cancel(self, group: Group, task_id: str) -> str:
        """Have every rank drop the task; what they answered."""
        runners = [(rank.node_id, rank.runner_id) for rank in group.ranks]
        statuses = await self._daemon.cancel_on_runners(runners, task_id)
        return f"{statuses[0].replace('_', ' ')} on {len(statuses)} of {len(runners)} ranks"

    async def restart(self, instance_id: str) -> str:
        return (await self._daemon.restart_runners(instance_id)).message

    async def delete(self, instance_id: str) -> str:
        return (await self._daemon.delete(instance_id)).message

    async def place(self, wanted: PlaceInstanceParams) -> str:
        answer = await self._daemon.place(wanted, ensure=False)
        return answer.instance_id or answer.message

    async def drain(self, node_id: str, *, draining: bool) -> str:
        """Take a node out of rotation, or bring it back; why not, if it did not work."""
        answer = await self._daemon.drain([node_id], draining=draining)
        failed = [f"{node.name}: {node.error}" for node in answer.nodes if not node.ok]
        return "; ".join(failed) or ("takes no new work" if draining else "takes work again")

    async def purge(self, wanted: PurgeRequest) -> PurgeResult:
        return await self._daemon.purge(wanted)
