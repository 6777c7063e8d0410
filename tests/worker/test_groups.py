"""Ranks on several nodes: they start together, serve together and end together."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from skulkd.runner.protocol import GenerationOptions
from skulkd.store.staging.progress import FilesProgress
from skulkd.wire.events import TaskCreated, TaskFailed
from skulkd.wire.ids import InstanceId
from skulkd.wire.runners import RunnerFailed, RunnerReady
from skulkd.wire.shards import ShardMetadata
from skulkd.wire.timeline import RunnerStanding
from skulkd.worker.refusals import NoSuchInstance, NotReady
from tests.worker.group_rig import OPTIONS, group_of, group_ready
from tests.worker.rig import (
    a_request,
    eventually,
    first_text,
    is_running,
    log_text,
    read_all,
    stand_in,
    stand_ins,
)


@pytest.mark.parametrize("size", [2, 3])
async def test_all_ranks_start_in_order_and_answer(tmp_path: Path, size: int) -> None:
    async with group_of(tmp_path, [stand_in()] * size) as rig:
        instance_id = await group_ready(rig)
        for rank in range(size):
            record = rig.record(rank)
            changes = [m.detail for m in record.milestones if m.name == "status_changed"]
            assert changes[-6:] == [
                "RunnerConnecting",
                "RunnerConnected",
                "RunnerLoading",
                "RunnerLoaded",
                "RunnerWarmingUp",
                "RunnerReady",
            ]
            assert (record.device_rank, record.world_size) == (rank, size)
        text, ended = await read_all(await rig.ask(instance_id, "say 3"))
        assert (text, ended.status) == ("0 1 2 ", "Complete")
        for rank in range(size):
            await eventually(
                lambda rank=rank: rig.record(rank).completed_task_count == 4, f"rank {rank}"
            )
        created = [e for e in rig.events if isinstance(e, TaskCreated)]
        assert sum("TextGeneration" in type(e.task).__name__ for e in created) == 1


async def test_a_cancelled_request_is_dropped_by_every_rank(tmp_path: Path) -> None:
    async with group_of(tmp_path, [stand_in()] * 2) as rig:
        instance_id = await group_ready(rig)
        stream = await rig.ask(instance_id, "hang")
        await first_text(stream)
        assert rig.workers[0].cancel(stream.task_id) == "cancel_requested"
        _, ended = await read_all(stream)
        assert ended.status == "Cancelled"
        await eventually(
            lambda: all(not rig.record(rank).in_progress_tasks for rank in (0, 1)),
            "every rank to be done with it",
        )
        assert rig.record(1).cancelled_task_ids == [stream.task_id]


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize(
    ("number", "cause"), [(signal.SIGKILL, "signal=9 (SIGKILL)"), (signal.SIGSTOP, "stopped by")]
)
async def test_a_rank_that_dies_or_freezes_ends_all_and_all_come_back(
    tmp_path: Path, rank: int, number: int, cause: str
) -> None:
    async with group_of(tmp_path, [stand_in()] * 3) as rig:
        instance_id = await group_ready(rig)
        stream = await rig.ask(instance_id, "hang")
        await first_text(stream)
        old = rig.live_pids()
        os.kill(rig.pid(rank), number)
        _, ended = await read_all(stream)
        assert (ended.status, ended.error_type) == ("Failed", "runner_crashed")
        assert ended.retryable
        assert f"rank {rank} on node-{rank}: {cause}" in (ended.error_message or "")
        await rig.served_again(old)
        assert not any(is_running(pid) for pid in old)
        assert (await read_all(await rig.ask(instance_id, "say 2")))[0] == "0 1 "
        failed = [e for e in rig.events if isinstance(e, TaskFailed)]
        assert {e.task_id for e in failed} >= {stream.task_id}


@pytest.mark.parametrize("command", ["crash 91 on 0", "lose 91 on 0"])
async def test_the_first_to_notice_is_not_blamed(tmp_path: Path, command: str) -> None:
    unwatched = replace(OPTIONS, timeouts=replace(OPTIONS.timeouts, poll_s=3600))
    async with group_of(tmp_path, [stand_in(), stand_in()], unwatched) as rig:
        instance_id = await group_ready(rig)
        os.kill(rig.pid(1), signal.SIGSTOP)
        stream = await rig.ask(instance_id, command)
        _, ended = await read_all(stream)
        assert "rank 1 on node-1: stopped by a signal" in (ended.error_message or "")


async def test_three_crashes_open_the_circuit_at_the_leader(tmp_path: Path) -> None:
    async with group_of(tmp_path, [stand_in(), stand_in("crash in load")]) as rig:
        rig.place()
        reason = await rig.fails("it crashed too often")
        assert "rank 1 on node-1: " in reason
        assert "exitcode=70" in reason
        await rig.all_reach(RunnerFailed)
        await eventually(lambda: not rig.live_pids(), "every rank to be gone")
        assert log_text(tmp_path / "node-1").count("boots crash in load") == 3


async def test_a_group_that_was_given_up_starts_when_an_operator_restarts_it(
    tmp_path: Path,
) -> None:
    mended = stand_ins(tmp_path / "boots", "bad model", "well")
    async with group_of(tmp_path, [stand_in(), mended]) as rig:
        instance_id = rig.place()
        reason = await rig.fails("another start would not help")
        assert "skulkctl restart --instance" in reason
        await eventually(lambda: not rig.live_pids(), "every rank to be gone")
        for worker in rig.workers:
            worker.restart(instance_id)
        await rig.all_serve()
        old = rig.live_pids()
        stream = await rig.ask(instance_id, "hang")
        rig.workers[0].restart(instance_id)
        _, ended = await read_all(stream)
        assert "rank 0 on node-0: restarted by an operator" in (ended.error_message or "")
        await rig.served_again(old)


async def test_what_another_start_cannot_cure_is_not_started_again(tmp_path: Path) -> None:
    async with group_of(tmp_path, [stand_in(), stand_in("bad model")]) as rig:
        rig.place()
        reason = await rig.fails("another start would not help")
        assert "model.safetensors is cut off" in reason
        await eventually(lambda: not rig.live_pids(), "every rank to be gone")


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_lost_node_ends_the_others(tmp_path: Path, lost: int) -> None:
    async with group_of(tmp_path, [stand_in()] * 2) as rig:
        instance_id = await group_ready(rig)
        stream = await rig.ask(instance_id, "hang")
        await first_text(stream)
        survivor = rig.pid(1 - lost)
        rig.peers[lost].leave()
        rig.workers[1 - lost].notify()
        await eventually(lambda: not is_running(survivor), "the other rank to end")
        if lost == 1:
            _, ended = await read_all(stream)
            assert "rank 1 on node-1: node-1 is not in the cluster" in (ended.error_message or "")


async def test_a_lost_node_is_the_reason_even_when_its_instance_is_gone_first(
    tmp_path: Path,
) -> None:
    async with group_of(tmp_path, [stand_in()] * 2) as rig:
        instance_id = await group_ready(rig)
        stream = await rig.ask(instance_id, "hang")
        await first_text(stream)
        rig.peers[1].leave()
        rig.delete(instance_id)
        _, ended = await read_all(stream)
        assert ended.retryable
        assert "rank 1 on node-1: node-1 " in (ended.error_message or "")


async def test_a_delete_between_the_end_and_its_reason_leaves_no_request_open(
    tmp_path: Path,
) -> None:
    unwatched = replace(OPTIONS, timeouts=replace(OPTIONS.timeouts, poll_s=3600))
    async with group_of(tmp_path, [stand_in()] * 2, unwatched) as rig:
        instance_id = await group_ready(rig)
        stream = await rig.ask(instance_id, "hang")
        await first_text(stream)

        async def silent(_asker: object, _body: bytes) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError

        rig.peers[1].serve("group.goal", silent)
        os.kill(rig.pid(0), signal.SIGKILL)
        await rig.rank_reaches(0, RunnerFailed)
        rig.delete(instance_id)
        _, ended = await read_all(stream)
        assert "rank 0 on node-0: signal=9" in (ended.error_message or "")


async def test_a_node_that_stops_tells_the_others(tmp_path: Path) -> None:
    async with group_of(tmp_path, [stand_in()] * 2) as rig:
        instance_id = await group_ready(rig)
        stream = await rig.ask(instance_id, "hang")
        await first_text(stream)
        await rig.workers[1].stop()
        _, ended = await read_all(stream)
        assert "rank 1 on node-1: its node is stopping" in (ended.error_message or "")


async def test_a_deleted_group_is_stopped_everywhere(tmp_path: Path) -> None:
    async with group_of(tmp_path, [stand_in(), stand_in("hang in load")]) as rig:
        instance_id = rig.place()
        await eventually(
            lambda: any(r.status_kind == "RunnerLoading" for r in rig.workers[1].diagnostics()),
            "a rank to load",
        )
        rig.delete(instance_id)
        await eventually(lambda: not rig.live_pids(), "every rank to be gone")
        await eventually(
            lambda: not any(worker.diagnostics() for worker in rig.workers), "no record to be left"
        )


async def test_a_request_is_refused_when_a_rank_does_not_take_it(tmp_path: Path) -> None:
    async with group_of(tmp_path, [stand_in()] * 2) as rig:
        instance_id = await group_ready(rig)
        old = rig.live_pids()

        async def deaf(_asker: object, _body: bytes) -> bytes:
            from skulkd.peers import PeerRefused

            raise PeerRefused(rig.nodes[1], "not_ready", "node-1 takes nothing")

        good = rig.peers[1]._answers["task.follow"]
        rig.peers[1].serve("task.follow", deaf)
        with pytest.raises(NotReady, match="rank 1 on node-1 did not take a request: node-1 takes"):
            await rig.ask(instance_id, "say 1")
        rig.peers[1].serve("task.follow", good)
        await rig.served_again(old)


async def test_only_the_node_of_rank_0_takes_requests(tmp_path: Path) -> None:
    async with group_of(tmp_path, [stand_in()] * 2) as rig:
        instance_id = await group_ready(rig)
        with pytest.raises(NotReady):
            await rig.workers[1].submit(a_request(instance_id, "say 1"), GenerationOptions())
        with pytest.raises(NoSuchInstance):
            rig.workers[0].restart(InstanceId("another"))
        await rig.all_reach(RunnerReady)


class Slow:
    """Files that never come."""

    def __init__(self) -> None:
        self.waiting = 0

    async def ensure_files(self, _shard: object) -> Path:
        self.waiting += 1
        try:
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            self.waiting -= 1

    def progress(self, _shard: object) -> FilesProgress | None:
        return FilesProgress(3, 10, 1.5, 4.7, 0.5, "the store is computing checksums")


async def test_files_of_a_deleted_group_are_not_waited_for(tmp_path: Path) -> None:
    files = Slow()
    async with group_of(tmp_path, [stand_in()] * 2, files=files) as rig:
        instance_id = rig.place()
        await eventually(lambda: files.waiting == 2, "both nodes to wait for files")
        for worker in rig.workers:
            (record,) = worker.diagnostics()
            assert isinstance(record, RunnerStanding)
            assert record.waiting is not None
            assert (record.waiting.reason, record.waiting.done_bytes) == ("files", 3)
            assert record.waiting.detail == "the store is computing checksums"
        rig.delete(instance_id)
        await eventually(lambda: files.waiting == 0, "nobody to wait any more")
        await eventually(
            lambda: not any(worker.diagnostics() for worker in rig.workers), "no record to be left"
        )


class OnlyHere:
    """Files are here on one node and never come to the other."""

    def __init__(self, path: Path, absent: Slow) -> None:
        self._path = path
        self._absent = absent

    async def ensure_files(self, shard: ShardMetadata) -> Path:
        return self._path if shard.device_rank == 0 else await self._absent.ensure_files(shard)

    def progress(self, _shard: object) -> FilesProgress | None:
        return None


async def test_a_rank_with_its_files_waits_for_the_others(tmp_path: Path) -> None:
    files = OnlyHere(tmp_path, Slow())
    async with group_of(tmp_path, [stand_in()] * 2, files=files) as rig:
        rig.place()

        def reasons() -> list[str | None]:
            records = [record for worker in rig.workers for record in worker.diagnostics()]
            standing = [record for record in records if isinstance(record, RunnerStanding)]
            return sorted(one.waiting.reason if one.waiting else "" for one in standing)

        await eventually(lambda: reasons() == ["files", "ranks"], "both ranks to say why they wait")
