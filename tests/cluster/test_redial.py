"""Links that should be there: gossip makes them, and what gossip loses is dialled again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from skulkd.cluster.cluster import ClusterNode
from skulkd.cluster.redial import FIRST_REDIAL_S, REDIAL_LIMIT, Redial
from skulkd.cluster.setup import serve_addresses
from skulkd.wire.ids import NodeId
from tests.cluster.clusters import Member, agree, until

LOST = NodeId("node-lost")
WHERE = ("192.0.2.1:1", "192.0.2.2:1")


class _Fabric:
    def __init__(self) -> None:
        self.introduced: list[list[str]] = []

    def introduce(self, addresses: Sequence[str]) -> None:
        self.introduced.append(list(addresses))


class _Cluster:
    """A cluster of which only the lost nodes matter."""

    def __init__(self) -> None:
        self.gone: dict[NodeId, Sequence[str]] = {LOST: WHERE}
        self.fabric = _Fabric()
        self.met = False

    def is_connected(self, _addresses: Sequence[str]) -> bool:
        return self.met

    def lacks_members(self) -> bool:
        return False

    def master(self) -> NodeId | None:
        return None


class _Calls:
    """A redial with a clock that is told, and a network that answers as it is told."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cluster = _Cluster()
        self.asked: list[str] = []
        self.up: set[str] = {WHERE[1]}
        self.redial = Redial(
            cast("ClusterNode", self.cluster), clock=lambda: self.now, answers=self._answers
        )

    async def _answers(self, address: str) -> bool:
        self.asked.append(address)
        return address in self.up

    async def after(self, seconds: float) -> list[list[str]]:
        """Whom it introduced when it looked after that time."""
        self.now += seconds
        self.cluster.fabric.introduced = []
        await self.redial.call_lost_nodes()
        return self.cluster.fabric.introduced


async def test_a_lost_node_is_called_soon_where_it_answers_and_then_less_often() -> None:
    calls = _Calls()
    assert await calls.after(0) == []
    assert calls.asked == [], "its own reconnecting gets a moment first"
    assert await calls.after(FIRST_REDIAL_S) == [[WHERE[1]]]
    assert calls.asked == list(WHERE)
    pauses = []
    for _ in range(12):
        pause = 0.0
        while not await calls.after(1.0):
            pause += 1.0
        pauses.append(pause + 1.0)
    assert pauses[:4] == [2.0, 2.0, 2.0, 2.0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 60.0


async def test_nobody_is_introduced_where_nothing_answers() -> None:
    calls = _Calls()
    calls.up = set()
    await calls.after(0)
    assert await calls.after(FIRST_REDIAL_S) == []
    assert calls.asked


async def test_calling_ends_when_the_node_is_met_again_or_it_is_hopeless() -> None:
    calls = _Calls()
    await calls.after(0)
    calls.cluster.met = True
    assert await calls.after(5) == []
    assert not calls.cluster.gone
    calls = _Calls()
    calls.up = set()
    for _ in range(REDIAL_LIMIT + 2):
        await calls.after(61)
    assert not calls.cluster.gone
    # One that is lost anew is called from the beginning.
    calls.cluster.gone[LOST] = WHERE
    calls.up = {WHERE[0]}
    await calls.after(0)
    assert await calls.after(FIRST_REDIAL_S) == [[WHERE[0]]]


async def _linked(members: Sequence[Member]) -> None:
    """Until all agree, each looking for missing links as a daemon does."""
    for member in members:
        serve_addresses(member.cluster)
    redials = [Redial(member.cluster) for member in members]

    async def keep_looking(redial: Redial) -> None:
        while True:
            await redial.call_lost_nodes()
            await asyncio.sleep(0.2)

    looking = [asyncio.create_task(keep_looking(redial)) for redial in redials]
    try:
        await until(lambda: agree(members), "links between all")
    finally:
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)


async def test_nodes_that_know_only_one_in_the_middle_link_to_each_other(tmp_path: Path) -> None:
    b = Member("b", tmp_path, [])
    await b.start()
    outer = [Member(name, tmp_path, [b.address]) for name in ("a", "c", "d")]
    try:
        for member in outer:
            await member.start()
        await _linked([b, *outer])
        addresses = {member.address for member in (b, *outer)}
        for member in outer:
            assert {one.node_id for one in member.cluster.peers.others()} == {
                other.node_id for other in (b, *outer) if other is not member
            }
            assert set(member.cluster.fabric.plan.peers) == {b.address}
            greeted = {one for got in member.cluster.hellos.values() for one in got.addresses}
            assert greeted == addresses - {member.address}
        # The link is one of their own: it lives on without the one who told them.
        await b.stop()
        await until(lambda: agree(outer), "the others without the one in the middle")
    finally:
        for member in (b, *outer):
            await member.stop()


async def test_two_clusters_that_do_not_know_each_other_meet_by_a_call(tmp_path: Path) -> None:
    """As after a cut that lasted: nothing but the list of lost nodes leads back."""
    a, b = Member("a", tmp_path, []), Member("b", tmp_path, [])
    try:
        await a.start()
        await b.start()
        await until(lambda: a.leads and b.leads, "two masters")
        a.cluster.missing(b.node_id, [b.address])
        await _linked([a, b])
        assert not a.cluster.gone
    finally:
        await a.stop()
        await b.stop()
