"""Cluster parts on real fabrics: events, commands, names, versions, the disk."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from skulkd.cluster.codec import is_message
from skulkd.cluster.commands import NO_MASTER
from skulkd.cluster.commits import Decision
from skulkd.cluster.frames import decode, encode
from skulkd.cluster.handshake import PROTOCOL
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.metrics import ClusterCollector
from skulkd.cluster.telemetry import NodeReadings
from skulkd.peers import PeerRefused
from skulkd.wire.events import (
    InstanceCreated,
    InstanceDeleted,
    TaskCreated,
    TestEvent,
    TracingStateChanged,
)
from skulkd.wire.ids import InstanceId, NodeId
from skulkd.wire.tasks import InputMessage
from tests.cluster.certificates import make_certificates, tls_files
from tests.cluster.clusters import Member, agree, clusters, until
from tests.daemon.builders import NOON, a_disk, a_task, an_instance


async def test_events_of_every_node_are_applied_everywhere_in_one_order(tmp_path: Path) -> None:
    async with clusters(tmp_path, "a", "b", "c") as members:
        for number in range(600):
            members[number % 3].cluster.append(TestEvent())
            if number % 50 == 0:
                await asyncio.sleep(0)
        await until(lambda: all(len(one.events) == 600 for one in members), "600 events")
        ids = [[event.event_id for event in one.events] for one in members]
        assert ids[0] == ids[1] == ids[2]
        assert members[0].state == members[1].state == members[2].state


async def test_the_words_of_a_request_do_not_travel(tmp_path: Path) -> None:
    async with clusters(tmp_path, "a", "b") as (a, b):
        task = a_task("t", "i")
        words = [InputMessage(role="user", content="my secret thoughts")]
        params = task.task_params.model_copy(update={"input": words, "temperature": 0.5})
        told = task.model_copy(update={"task_params": params})
        b.cluster.append(TaskCreated(task_id=task.task_id, task=told))
        await until(lambda: a.state.tasks, "the task")
        kept = a.state.tasks[task.task_id].task_params  # type: ignore[union-attr]
        assert kept.temperature == 0.5  # type: ignore[union-attr]
        assert "thoughts" not in a.state.model_dump_json() + b.state.model_dump_json()


async def test_a_command_is_decided_once_by_the_master_and_seen_by_the_asker(
    tmp_path: Path,
) -> None:
    async with clusters(tmp_path, "a", "b") as (a, b):
        decided: list[bytes] = []

        def turn(body: bytes, _: JournalReplica) -> Decision:
            decided.append(body)
            return Decision([TracingStateChanged(enabled=True)], b'{"was": false}')

        def refuse(_body: bytes, _: JournalReplica) -> Decision:
            raise PeerRefused(a.node_id, "too_big", "it does not fit", b'{"short": 1}')

        for member in (a, b):
            member.commands.register("tracing", turn)
            member.commands.register("no", refuse)
        assert await b.commands.send("tracing", b"on", 60) == b'{"was": false}'
        assert b.state.tracing_enabled
        assert decided == [b"on"]
        with pytest.raises(PeerRefused, match="it does not fit") as refused:
            await b.commands.send("no", b"", 60)
        assert (refused.value.kind, refused.value.data) == ("too_big", b'{"short": 1}')
        with pytest.raises(PeerRefused) as unknown:
            await b.commands.send("nonsense", b"", 60)
        assert unknown.value.kind == "unknown_command"


async def test_a_command_that_is_sent_again_gets_the_first_answer(tmp_path: Path) -> None:
    async with clusters(tmp_path, "a", "b") as (a, b):
        for member in (a, b):
            member.commands.register("x", lambda *_: Decision([TestEvent()], b'"done"'))
        frame = b'{"id": "c-1", "kind": "x"}\n'
        first = await b.cluster.peers.ask(a.node_id, "cluster.command", frame, deadline_s=600)
        await until(lambda: b.cluster.decided("c-1"), "the answer in the journal")
        again = await b.cluster.peers.ask(a.node_id, "cluster.command", frame, deadline_s=600)
        assert first == again
        await a.crash()
        await until(lambda: b.leads, "a new master")
        failed_over = await b.cluster.peers.ask(b.node_id, "cluster.command", frame, deadline_s=600)
        assert failed_over == first
        assert sum(isinstance(event, TestEvent) for event in b.events) == 1


async def test_a_command_waits_for_the_next_master(tmp_path: Path) -> None:
    async with clusters(tmp_path, "a", "b", "c") as (a, b, c):
        for member in (a, b, c):
            member.commands.register("x", lambda *_: Decision([TestEvent()], b'"done"'))
        await a.crash()
        assert await c.commands.send("x", b"", 60) == b'"done"'
        await until(lambda: agree([b, c]), "b and c to agree")


async def test_without_a_master_a_command_ends_at_its_deadline(tmp_path: Path) -> None:
    lonely = Member("a", tmp_path, ["127.0.0.1:9"])
    with pytest.raises(PeerRefused) as refused:
        await lonely.commands.send("x", b"", 0.05)
    assert refused.value.kind == NO_MASTER


async def test_readings_reach_the_others_and_go_with_their_node(tmp_path: Path) -> None:
    async with clusters(tmp_path, "a", "b") as (a, b):
        b.telemetry.record(b.node_id, NodeReadings(NOON, disk=a_disk(7), warnings=("hot",)))
        b.cluster.publish_readings()
        await until(lambda: a.telemetry.of(b.node_id), "the readings of b")
        got = a.telemetry.of(b.node_id)
        assert got is not None
        assert (got.disk, got.warnings) == (a_disk(7), ("hot",))
        assert got.seen != NOON  # by the clock of the node that shows it
        await b.crash()
        await until(lambda: a.telemetry.of(b.node_id) is None, "b to be forgotten")


async def test_another_protocol_version_does_not_join_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with clusters(tmp_path, "a") as (a,):
        newer = Member("kite9", tmp_path, [a.address], version="9.0.0", protocol=(2, 4))
        await newer.start()
        try:
            await until(lambda: caplog.text.count("does not join") == 2, "the warnings of both")
        finally:
            await newer.crash()
        assert (
            "kite9 (node-kite9) does not join: it runs skulkd 9.0.0 with cluster protocol 2.4"
            in (caplog.text)
        )
        assert "a (node-a) does not join: it runs skulkd 1.2.3 with cluster protocol" in caplog.text
        assert not a.cluster.peers.others()


class _Chatty:
    """A fabric's voice as of a newer minor version: it says more than this version knows."""

    def __init__(self, member: Member) -> None:
        self.said = 0
        fabric = member.cluster.fabric
        put = fabric._put

        def more(plane: str, node: NodeId | None, body: bytes) -> None:
            kind, head, rest = decode(body)
            if is_message(kind):
                rest = json.dumps({**json.loads(rest), "colour": {"of": "the sea"}}).encode()
            self.said += 1
            extra = {key: value for key, value in head.items() if key != "k"} | {"mood": [1]}
            put(plane, node, encode(kind, rest, **extra))

        fabric._put = more  # type: ignore[method-assign]


async def test_a_newer_minor_version_joins_and_what_it_adds_is_ignored(tmp_path: Path) -> None:
    async with clusters(tmp_path, "a") as (a,):
        newer = Member("b", tmp_path, [a.address], version="1.9.0", protocol=(PROTOCOL[0], 99))
        voice = _Chatty(newer)
        await newer.start()
        try:
            await until(lambda: agree([a, newer]), "one cluster")
            newer.cluster.append(InstanceCreated(instance=an_instance("i1", (a.node_id,))))
            await until(lambda: a.state.instances and newer.state == a.state, "the instance")
            a.commands.register("x", lambda *_: Decision([TestEvent()], b'"done"'))
            assert await newer.commands.send("x", b"", 60) == b'"done"'
            assert voice.said
        finally:
            await newer.stop()


async def test_placements_and_deletions_are_on_disk_soon_after_they_changed(
    tmp_path: Path,
) -> None:
    async with clusters(tmp_path, "a") as (a,):
        for name in ("i1", "i2"):
            a.cluster.append(InstanceCreated(instance=an_instance(name, (a.node_id,))))
        await until(lambda: (one := a.file.load()) and len(one.placements) == 2, "both on disk")
        deleted = InstanceDeleted(instance_id=InstanceId("i1"))
        await a.cluster.commits.commit("c1", lambda _: Decision([deleted]))
        assert (one := a.file.load()) is not None
        assert one.deletions, "a command is on disk when it is answered"
        a.cluster.append(TracingStateChanged(enabled=True))
    record = a.file.load()
    assert record is not None
    assert [one.instance.instance_id for one in record.placements] == ["i2"]
    assert record.tracing, "what was not written yet is written at the end"


async def test_figures_tell_members_master_journal_and_traffic(tmp_path: Path) -> None:
    async with clusters(tmp_path, "a", "b") as (a, b):
        b.cluster.append(TestEvent())
        await until(lambda: b.events, "an event")
        figures = {}
        for name, member in (("a", a), ("b", b)):
            registry = CollectorRegistry()
            registry.register(ClusterCollector(member.cluster))
            figures[name] = generate_latest(registry).decode()
        assert "skulk_cluster_members 2.0" in figures["a"]
        assert "skulk_cluster_master 1.0" in figures["a"]
        assert "skulk_cluster_master 0.0" in figures["b"]
        assert "skulk_journal_events_total 1.0" in figures["b"]
        assert 'skulk_fabric_bytes_total{way="in"}' in figures["b"]
        assert 'skulk_fabric_failed_total{plane="one"} 0.0' in figures["b"]


async def test_links_can_be_encrypted_with_certificates_of_one_authority(tmp_path: Path) -> None:
    make_certificates(tmp_path, "a", "b")
    async with clusters(tmp_path, "a", "b", tls=lambda name: tls_files(tmp_path, name)) as (a, b):
        b.cluster.append(TestEvent())
        await until(lambda: a.events, "an event over TLS")
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(a.address.rpartition(":")[2])
        )
        writer.write(b"not TLS at all, but long enough to be looked at\r\n\r\n")
        assert b"skulk" not in await reader.read(100)
        writer.close()
