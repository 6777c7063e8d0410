"""Traces: files, merging, sums, the switch, and the views over several nodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from skulkd.api.services import Services
from skulkd.observe.trace_files import BadTraceId, NoSuchTrace, Part, TraceFiles
from skulkd.observe.trace_stats import item_of, merged, merged_items, source_nodes, stats_of
from skulkd.runner.protocol import TaskTrace
from skulkd.wire.events import InstanceCreated, TaskCreated
from skulkd.wire.ids import CommandId, NodeId, TaskId
from skulkd.wire.tracing import UNFINISHED, TraceEventResponse, TraceListResponse, TracePart
from tests.api.in_process import serving, some_services
from tests.daemon.builders import a_task, an_instance
from tests.peer_mesh import MeshPeers, peer_mesh

TASK = TaskId("task-1")


def span(name: str, start: int, took: int, rank: int = 0, **changes: Any) -> TraceEventResponse:
    facts: dict[str, Any] = {
        "name": name, "start_us": start, "duration_us": took, "rank": rank, "category": name,
        "node_id": f"node-{rank}", "model_id": "m", "task_kind": "text", "tags": ["text"],
    }  # fmt: skip
    return TraceEventResponse(**{**facts, **changes})


def part(rank: int, *events: TraceEventResponse, size: int = 2) -> Part:
    return Part(TASK, rank, events, CommandId("cmd-9"), size)


def test_parts_of_ranks_become_one_trace_that_knows_what_is_missing(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path)
    files.add(part(1, span("prefill", 100, 50, rank=1)))
    assert files.read(TASK).partial
    files.add(part(0, span("prefill", 90, 70), span("decode", 160, 40)))
    files.add(part(0, span("prefill", 90, 70), span("decode", 160, 40)))
    trace = files.read(TASK)
    assert (trace.ranks, trace.partial, trace.command_id) == ([0, 1], False, "cmd-9")
    assert len(trace.events) == 3
    assert trace.events[0] == span("prefill", 100, 50, rank=1)


def test_what_a_killed_rank_had_sent_is_kept_and_marked(tmp_path: Path) -> None:
    files, mark = TraceFiles(tmp_path), span(UNFINISHED, 130, 0, category="lifecycle")
    early, late = span("prefill", 90, 70), span("decode", 160, 40)
    end = span("finish", 200, 0, category="lifecycle")
    files.add(part(1, span("prefill", 100, 50, rank=1)))
    files.add(part(0, early, mark))
    trace = files.read(TASK)
    assert (trace.ranks, trace.partial) == ([0, 1], True)
    assert merged_items([item_of(trace, []), item_of(trace, [])])[0].partial
    files.add(part(0, early, late, end))
    files.add(part(0, early, mark))  # overtaken on its way
    whole = files.read(TASK)
    assert [event.name for event in whole.events if event.rank == 0] == [
        "prefill", "decode", "finish",
    ]  # fmt: skip
    assert not whole.partial
    assert not merged_items([item_of(trace, []), item_of(whole, [])])[0].partial


def test_parts_of_ranks_at_work_on_different_nodes_do_not_make_a_whole(tmp_path: Path) -> None:
    items = []
    for rank in (0, 1):
        files = TraceFiles(tmp_path / str(rank))
        mark = span(UNFINISHED, 130, 0, rank, category="lifecycle")
        files.add(part(rank, span("prefill", 90, 70, rank), mark))
        items.append(item_of(files.read(TASK), []))
    (row,) = merged_items(items)
    assert (row.ranks, row.unfinished, row.partial) == ([0, 1], [0, 1], True)


def test_the_file_is_chromes_format(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path)
    files.add(part(0, span("prefill", 100, 50)))
    document = json.loads(files.path(TASK).read_text())
    row, thread = document["traceEvents"]
    assert (row["ph"], row["ts"], row["dur"], row["tid"], row["cat"]) == (
        "X",
        100,
        50,
        0,
        "prefill",
    )
    assert row["args"]["node_id"] == "node-0"
    assert thread["args"] == {"name": "Rank 0"}
    assert document["skulk"]["partial"] is True


def test_files_of_others_and_damaged_ones(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path)
    (tmp_path / "trace_bad.json").write_text("{")
    row = {"name": "x", "ph": "X", "ts": 1.5, "dur": 2, "tid": 3, "args": {"task_kind": "new"}}
    (tmp_path / "trace_stock.json").write_text(json.dumps({"traceEvents": [row]}))
    assert [one.task_id for one in files.every()] == ["stock"]
    event = files.read("stock").events[0]
    assert (event.rank, event.task_kind, event.category) == (3, None, "unknown")
    with pytest.raises(NoSuchTrace):
        files.read("bad")
    for evil in ("../x", "", "a/b", ".hidden", "x" * 200):
        with pytest.raises(BadTraceId):
            files.path(evil)


def test_old_traces_are_swept_and_zero_days_keep_all(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path)
    files.add(part(0, span("a", 1, 1)))
    files.add(Part(TaskId("new"), 0, [span("a", 1, 1)]))
    os.utime(files.path(TASK), (1000.0, 1000.0))
    os.utime(files.path("new"), (500_000.0, 500_000.0))
    assert files.sweep(0, now_s=600_000.0) == 0
    assert files.sweep(3, now_s=600_000.0) == 1
    assert [one.task_id for one in files.every()] == ["new"]


def test_sums(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path)
    files.add(part(0, span("decode", 100, 10), span("decode", 120, 30), span("mark", 150, 0)))
    files.add(part(1, span("decode", 90, 20, rank=1)))
    trace = files.read(TASK)
    stats = stats_of(trace, source_nodes(trace, {NodeId("node-0"): "kite1"}, NodeId("me")))
    assert stats.total_wall_time_us == 60
    decode = stats.by_category["decode"]
    assert (decode.total_us, decode.count, decode.min_us, decode.max_us, decode.avg_us) == (
        60, 3, 10, 30, 20.0,
    )  # fmt: skip
    assert stats.by_rank["1"].by_category["decode"].total_us == 20
    assert stats.by_category["mark"].total_us == 0
    assert [one.friendly_name for one in stats.source_nodes] == ["kite1", None]


def test_steps_inside_a_decode_are_not_counted_twice(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path)
    steps = [span("decode_step", start, 40, category="decode") for start in (100, 150, 200)]
    files.add(part(0, span("decode", 100, 150), *steps, size=1))
    trace = files.read(TASK)
    found = stats_of(trace, []).by_category["decode"]
    assert (found.total_us, found.count, found.min_us, found.max_us) == (150, 4, 40, 150)
    assert found.avg_us == 67.5


def test_the_same_task_on_several_nodes_is_one_row(tmp_path: Path) -> None:
    a, b = TraceFiles(tmp_path / "a"), TraceFiles(tmp_path / "b")
    a.add(part(0, span("prefill", 1, 2)))
    b.add(part(1, span("decode", 1, 2, rank=1, tags=["tool_call"])))
    items = [item_of(one.read(TASK), []) for one in (a, b)]
    assert [one.partial for one in items] == [True, True]
    (row,) = merged_items(items)
    assert (row.ranks, row.partial, row.categories) == ([0, 1], False, ["decode", "prefill"])
    assert row.has_tool_activity
    whole = merged([a.read(TASK), b.read(TASK), a.read(TASK)])
    assert (whole.ranks, len(whole.events), whole.partial) == ([0, 1], 2, False)


@contextlib.asynccontextmanager
async def two_nodes(
    home: Path,
) -> AsyncIterator[tuple[aiohttp.ClientSession, Services, Services, list[MeshPeers]]]:
    mesh = peer_mesh("node-0", "node-1")
    (home / "a").mkdir()
    (home / "b").mkdir()
    near = some_services(home / "a", peers=mesh[0])
    far = some_services(home / "b", peers=mesh[1])
    async with serving(near) as url, aiohttp.ClientSession(url) as client:
        yield client, near, far, mesh
    far.monitor.close()


async def get(client: aiohttp.ClientSession, path: str) -> tuple[int, Any]:
    async with client.get(path) as answer:
        return answer.status, await answer.json()


async def test_traces_over_the_api(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (client, near, far, mesh):
        near.observe.traces.files.add(part(0, span("prefill", 10, 5)))
        far.observe.traces.files.add(part(1, span("prefill", 12, 5, rank=1)))
        _, local = await get(client, "/v1/traces")
        assert len(TraceListResponse.model_validate(local).traces) == 1
        _, plain = await get(client, "/v1/traces/cluster")
        assert len(TraceListResponse.model_validate(plain).traces) == 1
        _, whole = await get(client, "/v1/cluster/traces")
        item = whole["traces"][0]
        assert (item["ranks"], item["partial"], item["commandId"]) == ([0, 1], False, "cmd-9")
        assert whole["unreachableNodes"] == []
        _, one = await get(client, f"/v1/traces/cluster/{TASK}")
        assert [event["rank"] for event in one["traces"]] == [0, 1]
        _, own = await get(client, f"/v1/traces/{TASK}")
        assert [event["rank"] for event in own["traces"]] == [0]
        _, stats = await get(client, f"/v1/traces/cluster/{TASK}/stats")
        assert (stats["totalWallTimeUs"], set(stats["byRank"])) == (7, {"0", "1"})
        async with client.get(f"/v1/traces/cluster/{TASK}/raw") as answer:
            assert "attachment" in answer.headers["Content-Disposition"]
            assert len((await answer.json())["traceEvents"]) == 4
        assert (await get(client, "/v1/traces/nothing"))[0] == 404
        assert (await get(client, "/v1/traces/cluster/nothing"))[0] == 404
        assert (await get(client, "/v1/traces/..%2Fx"))[0] == 400
        mesh[1].serve("trace.list", _mute)
        _, partial = await get(client, "/v1/cluster/traces")
        assert partial["traces"][0]["partial"]
        assert [one["nodeId"] for one in partial["unreachableNodes"]] == ["node-1"]
        ids = {"taskIds": [TASK, "nothing"]}
        async with client.post("/v1/traces/delete", json=ids) as answer:
            assert await answer.json() == {"deleted": [TASK], "notFound": ["nothing"]}
        async with client.post("/v1/traces/delete", json={"taskIds": ["../x"]}) as answer:
            assert answer.status == 400


async def test_a_trace_is_deleted_on_every_node(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (client, near, far, mesh):
        path, ids = "/v1/cluster/traces/delete", {"taskIds": [TASK, "nothing"]}
        near.observe.traces.files.add(part(0, span("prefill", 10, 5)))
        far.observe.traces.files.add(part(1, span("prefill", 12, 5, rank=1)))
        async with client.post(path, json={"taskIds": ["../x"]}) as answer:
            assert answer.status == 400
        async with client.post(path, json=ids) as answer:
            assert await answer.json() == {
                "deleted": [TASK], "notFound": ["nothing"], "unreachableNodes": [],
            }  # fmt: skip
        assert near.observe.traces.files.every() == far.observe.traces.files.every() == []
        far.observe.traces.files.add(part(1, span("prefill", 12, 5, rank=1)))
        async with client.post(path, json=ids) as answer:
            assert (await answer.json())["deleted"] == [TASK]
        mesh[1].serve("trace.delete", _mute)
        async with client.post(path, json=ids) as answer:
            partial = await answer.json()
        assert [one["nodeId"] for one in partial["unreachableNodes"]] == ["node-1"]


async def _mute(_asker: NodeId, _body: bytes) -> bytes:
    return b"nonsense"


async def test_the_switch_is_answered_with_what_was_agreed(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (client, near, _, _):
        assert (await get(client, "/v1/tracing"))[1] == {"enabled": False}
        async with client.put("/v1/tracing", json={"enabled": True}) as answer:
            assert await answer.json() == {"enabled": True}
        assert near.replica.state.tracing_enabled
        async with client.put("/v1/tracing", json={"enabled": "yes"}) as answer:
            assert answer.status == 422


async def test_a_measured_part_reaches_every_node_of_the_placement(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (_, near, far, mesh):
        instance = an_instance(nodes=(NodeId("node-0"), NodeId("node-1")))
        task = a_task(instance.instance_id)
        for event in (InstanceCreated(instance=instance),
                      TaskCreated(task_id=task.task_id, task=task)):  # fmt: skip
            near.journal.append(event)
        near.observe.traces.collect(
            TaskTrace(task_id=task.task_id, rank=0, traces=[span("prefill", 1, 2)])
        )
        await asyncio.gather(*near.observe.traces.jobs)
        for node in (near, far):
            trace = node.observe.traces.files.read(task.task_id)
            assert (trace.ranks, trace.world_size, trace.partial) == ([0], 2, True)
            assert trace.command_id == task.command_id
        mesh[1].leave()
        near.observe.traces.collect(
            TaskTrace(task_id=task.task_id, rank=1, traces=[span("prefill", 1, 2, rank=1)])
        )
        await asyncio.gather(*near.observe.traces.jobs)
        assert not near.observe.traces.files.read(task.task_id).partial


async def test_a_disk_that_refuses_costs_the_trace_only(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (_, near, _, _):
        (tmp_path / "a" / "traces").write_text("a file where a directory should be")
        await near.observe.traces.store(
            TracePart(task_id=TASK, rank=0, traces=[span("prefill", 1, 2)])
        )
        with pytest.raises(NoSuchTrace):
            near.observe.traces.files.read(TASK)
