"""Deciding about instances: what a handler asks for is decided once, by the master.

A node that is alone, or is the master, decides under a lock with all earlier decisions already
in the state. The arithmetic is `placement`'s; this module gathers what it needs and carries
refusals to where they are answered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from skulkd.api.journal import Journal
from skulkd.cluster.commands import NO_MASTER
from skulkd.cluster.replica import Replica
from skulkd.cluster.state_view import StateView
from skulkd.machine.mlx_build import mlx_build
from skulkd.peers import PeerRefused, Peers, ask_others
from skulkd.placement.candidates import Circumstances, Cluster, cluster_of
from skulkd.placement.nearest import Alternative, alternatives
from skulkd.placement.orders import (
    CreateOrder,
    Decided,
    DeleteOrder,
    NodeNews,
    PlaceOrder,
    RepairOrder,
    decide_create,
    decide_delete,
    decide_place,
    decide_repair,
    with_news,
)
from skulkd.placement.promises import TeardownCredits, free_ram, free_vram
from skulkd.placement.refusals import Refusal
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.state import State

PLACE, CREATE, DELETE = "instance.place", "instance.create", "instance.delete"
REPAIR = "instance.repair"
NEWS = "placement.news"
NEWS_DEADLINE_S = 3.0
DECIDE_DEADLINE_S = 9.0

log = logging.getLogger(__name__)

Send = Callable[[str, bytes, float], Awaitable[bytes]]
Tell = Callable[[str], Awaitable[NodeNews]]


class ToldRefusal(Refusal):
    """A refusal that another node decided; it keeps that node's kind, words and data."""

    def __init__(self, refused: PeerRefused) -> None:
        try:
            told = json.loads(refused.data)
        except ValueError:
            told = {}
        if not isinstance(told, dict):
            told = {}
        super().__init__(str(refused), told.get("hints", ()), told.get("data"))
        self.kind = refused.kind
        self.pending = refused.kind == NO_MASTER or bool(told.get("pending", False))


class Placements:
    """Orders about instances, and what the planner has to know beside the state."""

    def __init__(
        self,
        state: StateView,
        replica: Replica,
        journal: Journal,
        peers: Peers,
        tell: Tell,
        draining: Callable[[], Collection[NodeId]] = frozenset,
    ) -> None:
        self._state = state
        self._replica = replica
        self._journal = journal
        self._peers = peers
        self._tell = tell
        self._draining = draining
        self._lock = asyncio.Lock()
        self._send: Send = self._decide_here
        self._credits = TeardownCredits(time.monotonic, lambda: free_ram(state.current()))
        self._vram_credits = TeardownCredits(time.monotonic, lambda: free_vram(state.current()))
        journal.on_change(lambda: self._credits.watch(replica.state))
        journal.on_change(lambda: self._vram_credits.watch(replica.state))
        peers.serve(NEWS, self._answer_news)

    def through(self, send: Send) -> None:
        """Have the master decide, from now on, wherever it is."""
        self._send = send

    def state(self) -> State:
        """The merged state at this moment."""
        return self._state.current()

    def around(self, state: State | None = None) -> Circumstances:
        """What the state does not say, at this moment."""
        now = state or self._replica.state
        return Circumstances(
            draining=frozenset(self._draining()),
            credits=self._credits.available(now),
            vram_credits=self._vram_credits.available(now),
            rdma=self._state.rdma(),
            wired_limits=self._state.wired_limits(),
        )

    async def news(self, model_id: str) -> dict[NodeId, NodeNews]:
        """What every node says of itself and this model. Who is silent is not in it."""
        own = await self._tell(model_id)
        found = {self._peers.node_id: own}
        body = json.dumps({"modelId": model_id}).encode()
        for asked in await ask_others(self._peers, NEWS, body, deadline_s=NEWS_DEADLINE_S):
            if asked.answer is None:
                log.info("no news for a placement: %s", asked.error)
                continue
            try:
                found[asked.peer.node_id] = NodeNews.model_validate_json(asked.answer)
            except ValidationError as error:
                log.warning("news of %s cannot be read: %s", asked.peer.node_id, error)
        return found

    def looked_at(self, order: PlaceOrder) -> tuple[State, Cluster]:
        """The state as this node sees it, and what the planner sees in it. Changes nothing."""
        state = self.state()
        around = with_news(self.around(), order.news)
        return state, cluster_of(state, order.card.model_id, around)

    def nearest(
        self, refusal: Refusal, order: PlaceOrder, smaller: Sequence[ModelCard]
    ) -> list[Alternative]:
        """What would work instead of an order that was refused."""
        state, cluster = self.looked_at(order)
        return alternatives(refusal, order.wish, cluster, state, smaller)

    async def place(self, order: PlaceOrder) -> Instance:
        """Raises Refusal."""
        # A master of an older version refuses keys that it does not know.
        return await self._ordered(PLACE, order, unsent=set() if order.ensure else {"ensure"})

    async def create(self, order: CreateOrder) -> Instance:
        """Raises Refusal."""
        return await self._ordered(CREATE, order)

    async def delete(self, order: DeleteOrder) -> Instance:
        """Raises Refusal."""
        return await self._ordered(DELETE, order)

    async def repair(self, instance: Instance) -> Instance:
        """Move an instance that has failed where it is. Raises Refusal."""
        news = await self.news(instance.shard_assignments.model_id)
        order = RepairOrder(instance_id=instance.instance_id, news=news)
        return await self._ordered(REPAIR, order)

    def decide(self, kind: str, body: bytes, base: State) -> Decided:
        """What the master makes of an order, on this replicated state. Raises Refusal."""
        state, around = self._state.over(base), self.around(base)
        if kind == PLACE:
            return decide_place(PlaceOrder.model_validate_json(body), state, around)
        if kind == CREATE:
            return decide_create(CreateOrder.model_validate_json(body), state, around)
        if kind == DELETE:
            return decide_delete(DeleteOrder.model_validate_json(body), state)
        if kind == REPAIR:
            return decide_repair(RepairOrder.model_validate_json(body), state, around)
        raise ValueError(f"no order is called {kind}")

    async def _ordered(
        self, kind: str, order: BaseModel, unsent: set[str] | None = None
    ) -> Instance:
        body = order.model_dump_json(exclude=unsent).encode()
        try:
            answer = await self._send(kind, body, DECIDE_DEADLINE_S)
        except PeerRefused as refused:
            raise ToldRefusal(refused) from refused
        return CreateOrder.model_validate_json(answer).instance

    async def _decide_here(self, kind: str, body: bytes, deadline_s: float) -> bytes:
        async with asyncio.timeout(deadline_s), self._lock:
            decided = self.decide(kind, body, self._replica.state)
            for event in decided.events:
                self._journal.append(event)
        return decided_bytes(decided)

    async def _answer_news(self, _: NodeId, body: bytes) -> bytes:
        said = json.loads(body)
        news = await self._tell(str(said.get("modelId", "")))
        return news.model_dump_json().encode()


def decided_bytes(decided: Decided) -> bytes:
    """The answer to an order: the instance it is about."""
    return CreateOrder(instance=decided.instance).model_dump_json().encode()


def refusal_data(refusal: Refusal) -> bytes:
    """What a refusal is beside its sentence, for another node."""
    told: dict[str, Any] = {
        "hints": list(refusal.hints),
        "data": refusal.data,
        "pending": refusal.pending,
    }
    return json.dumps(told).encode()


def own_backends() -> list[str]:
    """What runners here compute with."""
    return ["mlx", f"mlx-{mlx_build()}"]
