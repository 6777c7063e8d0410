"""A command is on disk before it is answered, and never in the state when that was not possible."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from skulkd.cluster import commits
from skulkd.cluster.commits import Decision
from skulkd.cluster.disk import RecordFile
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.messages import ClusterRecord
from skulkd.peers import PeerRefused
from skulkd.wire.events import InstanceCreated, InstanceDeleted, TestEvent
from skulkd.wire.ids import InstanceId
from tests.cluster.clusters import Member, agree, clusters, until
from tests.daemon.builders import an_instance

PLACE, DELETE = "place", "delete"


def place(body: bytes, journal: JournalReplica) -> Decision:
    """Answers how many instances there were before."""
    created = InstanceCreated(instance=an_instance(body.decode(), ()))
    return Decision([created], b"%d" % len(journal.state.instances))


def delete(body: bytes, _: JournalReplica) -> Decision:
    return Decision([InstanceDeleted(instance_id=InstanceId(body.decode()))])


def ready(*members: Member) -> None:
    for member in members:
        member.commands.register(PLACE, place)
        member.commands.register(DELETE, delete)


async def followed(master: Member, *followers: Member) -> None:
    """Until the master has heard of its followers, and so waits for one of them to write."""
    expected = {follower.node_id for follower in followers}
    await until(lambda: set(master.cluster.commits._awaited()) >= expected, "the followers")


def on_disk(member: Member) -> set[str]:
    """What the next process would read."""
    record = RecordFile(member.file.path).load()
    placements = record.placements if record is not None else ()
    return {placement.instance.instance_id for placement in placements}


class Blocked:
    """Makes every write of a member wait, until `go_on` or the end of the block."""

    def __init__(self, member: Member) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()
        self._file, self._save = member.file, member.file.save

    def __enter__(self) -> Blocked:
        self._file.save = self._blocked  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._file.save = self._save  # type: ignore[method-assign]
        self.go_on.set()

    def _blocked(self, record: ClusterRecord) -> None:
        self.entered.set()
        self.go_on.wait()
        self._save(record)


async def test_answers_come_when_master_and_follower_have_written(tmp_path: Path) -> None:
    async with clusters(tmp_path, "a", "b") as (a, b):
        ready(a, b)
        await followed(a, b)
        for sender, name in ((a, "i1"), (b, "i2"), (a, "i3")):
            await sender.commands.send(PLACE, name.encode(), 60)
            assert name in on_disk(a), "on the master's disk"
            assert name in on_disk(b), "on the follower's disk"
            assert name in sender.state.instances
        await b.commands.send(DELETE, b"i1", 60)
        assert on_disk(a) == on_disk(b) == {"i2", "i3"}


async def test_commands_that_come_together_are_written_together_and_see_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with clusters(tmp_path, "a") as (a,):
        ready(a)
        written: list[ClusterRecord] = []
        save = a.file.save

        def counted(record: ClusterRecord) -> None:
            written.append(record)
            save(record)

        monkeypatch.setattr(a.file, "save", counted)
        names = [f"i{number}" for number in range(60)]
        answers = await asyncio.gather(*(a.commands.send(PLACE, n.encode(), 60) for n in names))
        assert sorted(map(int, answers)) == list(range(60)), "each saw those before it"
        assert len(written) < 20
        assert on_disk(a) == set(names)


async def test_the_event_loop_goes_on_while_the_disk_is_slow(tmp_path: Path) -> None:
    async with clusters(tmp_path, "a") as (a,):
        ready(a)
        with Blocked(a) as blocked:
            command = asyncio.create_task(a.commands.send(PLACE, b"i1", 60))
            await until(blocked.entered.is_set, "the write")
            a.cluster.append(TestEvent())
            await until(lambda: any(isinstance(e, TestEvent) for e in a.events), "another event")
            assert not command.done()
            assert "i1" not in a.state.instances, "not applied before it is written"
        await command
        assert "i1" in a.state.instances


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, commits.STORAGE_FULL),
        (errno.EDQUOT, commits.STORAGE_FULL),
        (errno.EROFS, commits.STORAGE_FAILED),
        (errno.EIO, commits.STORAGE_FAILED),
    ],
)
async def test_a_disk_that_fails_refuses_and_the_state_never_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: str
) -> None:
    async with clusters(tmp_path, "a", "b") as (a, b):
        ready(a, b)
        await followed(a, b)
        await b.commands.send(PLACE, b"kept", 60)
        with monkeypatch.context() as patched:

            def fail(_: ClusterRecord) -> None:
                raise OSError(number, os.strerror(number), str(a.file.path))

            patched.setattr(a.file, "save", fail)
            for order in ((PLACE, b"lost"), (DELETE, b"kept")):
                with pytest.raises(PeerRefused, match="nothing was changed") as refused:
                    await b.commands.send(*order, 60)
                assert refused.value.kind == kind
                assert os.strerror(number) in str(refused.value)
            assert a.cluster.disk_problem == os.strerror(number)
            assert set(a.state.instances) == set(b.state.instances) == {"kept"}
            assert on_disk(a) == {"kept"}
        await b.commands.send(PLACE, b"next", 60)
        assert on_disk(a) == on_disk(b) == {"kept", "next"}
        assert not a.cluster.disk_problem
        assert not any(
            isinstance(e, InstanceCreated) and e.instance.instance_id == "lost" for e in b.events
        )


async def test_a_full_disk_refuses_and_works_again_when_it_has_space(
    tmp_path: Path, small_disk: Path
) -> None:
    async with clusters(small_disk, "a") as (a,):
        ready(a)
        await a.commands.send(PLACE, b"before", 60)
        rest = small_disk / "rest"
        with pytest.raises(OSError, match="No space"), rest.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 512)
        refusals = []
        names = [f"i{number}" for number in range(40)]
        for name in names:
            # The last page of the file may have room for some more lines.
            try:
                await a.commands.send(PLACE, name.encode(), 60)
            except PeerRefused as refused:
                refusals.append((name, refused.kind))
        refused_names = {name for name, _ in refusals}
        assert {kind for _, kind in refusals} == {commits.STORAGE_FULL}
        assert refused_names.isdisjoint(a.state.instances)
        assert on_disk(a) == {"before", *names} - refused_names
        rest.unlink()
        await a.commands.send(PLACE, b"after", 60)
        assert on_disk(a) == set(a.state.instances) == {"before", "after", *names} - refused_names


async def test_a_follower_that_does_not_confirm_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "CONFIRM_S", 300.0)
    async with clusters(tmp_path, "a", "b") as (a, b):
        ready(a, b)
        await followed(a, b)
        await a.commands.send(PLACE, b"i0", 60)
        monkeypatch.setattr(commits, "CONFIRM_S", 0.2)
        with Blocked(b) as blocked:
            await a.commands.send(PLACE, b"i1", 60)
            assert a.cluster.commits._late == {b.node_id}
            await a.commands.send(PLACE, b"i2", 60)
            assert on_disk(a) == {"i0", "i1", "i2"}
            assert on_disk(b) == {"i0"}
            blocked.go_on.set()
            await until(lambda: not a.cluster.commits._late, "b confirms again")
        await a.commands.send(PLACE, b"i3", 60)
        assert on_disk(b) == {"i0", "i1", "i2", "i3"}


async def test_a_follower_that_cannot_write_says_so_and_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "CONFIRM_S", 300.0)
    async with clusters(tmp_path, "a", "b") as (a, b):
        ready(a, b)
        await followed(a, b)
        with monkeypatch.context() as patched:

            def fail(_: ClusterRecord) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            patched.setattr(b.file, "save", fail)
            await a.commands.send(PLACE, b"i1", 60)
            assert "i1" in on_disk(a)
            assert b.cluster.disk_problem == os.strerror(errno.ENOSPC)


async def test_a_follower_that_dies_does_not_hold_up_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "CONFIRM_S", 300.0)
    async with clusters(tmp_path, "a", "b") as (a, b):
        ready(a, b)
        await followed(a, b)
        with Blocked(b) as blocked:
            command = asyncio.create_task(a.commands.send(PLACE, b"i1", 60))
            await until(blocked.entered.is_set, "the write of the follower")
            assert not command.done()
            await b.crash()
            await command


async def test_one_of_two_followers_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "CONFIRM_S", 300.0)
    async with clusters(tmp_path, "a", "b", "c") as (a, b, c):
        await until(lambda: agree([a, b, c]), "one cluster")
        ready(a, b, c)
        master = next(one for one in (a, b, c) if one.leads)
        slow, quick = (one for one in (a, b, c) if one is not master)
        with Blocked(slow):
            await slow.commands.send(PLACE, b"i1", 60)
            assert "i1" in on_disk(master) & on_disk(quick)
