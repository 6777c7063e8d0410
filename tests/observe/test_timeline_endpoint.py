"""`GET /v1/cluster/timeline` over several nodes: all runners, all silences, skew."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from skulkd.api import timeline
from skulkd.api.services import Services
from skulkd.observe.timeline import BadTimelinePart, TimelinePart, clock_offset_s, read_part
from skulkd.wire.ids import NodeId
from skulkd.wire.timeline import ClusterTimeline, RunnerLive, RunnerStanding, Timeline
from tests.api.in_process import serving, some_services
from tests.observe.records import RecordingWorker, a_record
from tests.peer_mesh import peer_mesh
from tests.timeline.builders import assess


def with_records(node: Services, *records: Any) -> Services:
    worker = RecordingWorker(list(records))
    return replace(node, worker=worker)


@contextlib.asynccontextmanager
async def three_nodes(home: Path, *others: str) -> AsyncIterator[tuple[aiohttp.ClientSession, Any]]:
    """A client of node a; b has rank 1; the others are there and know nothing."""
    a, b, *rest = peer_mesh("node-a", "node-b", *others)
    near = with_records(some_services(home, peers=a), a_record("node-a", rank=0))
    far = with_records(some_services(home, peers=b), a_record("node-b", rank=1))
    timeline.TIMELINE.serve(far)
    async with serving(near) as url, aiohttp.ClientSession(url) as client:
        yield client, rest
    far.monitor.close()


async def test_runners_of_all_nodes_stand_side_by_side(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as (client, _):
        async with client.get("/v1/cluster/timeline") as answer:
            body = await answer.json()
        found = Timeline.model_validate(body)
        assert [(one.node_id, one.device_rank) for one in found.runners] == [
            ("node-a", 0),
            ("node-b", 1),
        ]
        assert [one.at for one in found.timeline] == sorted(one.at for one in found.timeline)
        assert {(one.instance_id, one.model_id) for one in found.timeline} == {("inst-1", "m")}
        assert found.limits is not None and found.limits.eval_seconds == 60.0
        skew = found.clock_skews[0]
        assert skew.node_id == "node-b"
        # The same clock on both sides, so the offset lies within the round trip.
        assert abs(skew.offset_seconds) <= skew.round_trip_seconds
        assert assess(body).worst.state == "OK"


async def test_what_only_the_supervisor_knows_is_told_of_every_runner(tmp_path: Path) -> None:
    """Pulse and pending tasks are keys of the timeline, not of the reference's own shapes."""
    live = RunnerLive(
        busy=True,
        step=3,
        moves=9,
        site="mx_barrier",
        site_seconds=4.0,
        silent_seconds=0.5,
        still_seconds=4.0,
    )
    record = a_record("node-a", rank=0).model_dump() | {"pendingTaskIds": ["task-9"]}
    standing = RunnerStanding(**record, live=live, pendingSeconds=7.0)
    [alone] = peer_mesh("node-a")
    near = with_records(some_services(tmp_path, peers=alone), standing)
    async with serving(near) as url, aiohttp.ClientSession(url) as client:
        async with client.get("/v1/cluster/timeline") as answer:
            [runner] = (await answer.json())["runners"]
        async with client.get("/v1/diagnostics/cluster/timeline") as answer:
            reference = ClusterTimeline.model_validate(await answer.json())
        async with client.get("/v1/diagnostics/node") as answer:
            [plain] = (await answer.json())["supervisorRunners"]
    assert (runner["pendingTaskIds"], runner["pendingSeconds"]) == (["task-9"], 7.0)
    assert (runner["live"]["site"], runner["live"]["step"]) == ("mx_barrier", 3)
    assert "live" not in plain
    assert [one.runner_id for one in reference.runners] == [runner["runnerId"]]
    assert len(reference.timeline) == len(record["flightRecorder"])


async def test_silent_and_odd_nodes_are_listed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline.TIMELINE, "deadline_s", 0.05)

    async def hang(_asker: NodeId, _body: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def nonsense(_asker: NodeId, _body: bytes) -> bytes:
        return b'{"runners": [{}]}'

    async with three_nodes(tmp_path, "node-mute", "node-odd", "node-old") as (client, rest):
        rest[0].serve(timeline.TIMELINE.name, hang)
        rest[1].serve(timeline.TIMELINE.name, nonsense)
        async with client.get("/v1/cluster/timeline") as answer:
            body = await answer.json()
        said = {one["nodeId"]: one["error"] for one in body["unreachableNodes"]}
        assert list(said) == ["node-mute", "node-odd", "node-old"]
        assert "PeerSilent" in said["node-mute"]
        assert "does not know" in said["node-odd"]
        assert "PeerRefused" in said["node-old"]
        assert assess(body).worst.rule == "D24"


def test_the_clock_offset_does_not_count_the_nodes_own_work() -> None:
    """Sent at 0, heard at 105 (by a clock 100 ahead), answered at 107, received at 12."""
    zero = datetime(2026, 5, 4, tzinfo=UTC)

    def second(number: float) -> datetime:
        return zero + timedelta(seconds=number)

    part = TimelinePart([], [], second(105), second(107))
    assert clock_offset_s(part, second(0), second(12)) == (100.0, 10.0)


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"7", b"{}", b'{"runners": 1, "timeline": [], "askedAt": "", "answeredAt": ""}',
     b'{"runners": [], "timeline": [1], "askedAt": "2026", "answeredAt": "2026"}'],
)  # fmt: skip
def test_what_is_no_part_is_refused(answer: bytes) -> None:
    with pytest.raises(BadTimelinePart):
        read_part(answer)
