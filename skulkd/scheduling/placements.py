"""The placement service: gathers what the planner needs and has the master decide.

Orders are commands: sent from any node, decided one after the other by the master on a state that
contains all earlier decisions. The arithmetic is `placement`'s.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from pydantic import BaseModel, ValidationError

from skulkd.cluster.commands import NO_MASTER, Commands, Decide
from skulkd.cluster.commits import Decision
from skulkd.cluster.journal import Journal
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.cluster.replica import Replica
from skulkd.cluster.state_view import StateView
from skulkd.peers import PeerRefused, Peers, ask_others
from skulkd.placement.candidates import Cluster, PlanInputs, cluster_of
from skulkd.placement.nearest import Alternative, alternatives
from skulkd.placement.orders import (
    CreateOrder,
    Decided,
    DeleteOrder,
    KeepOrder,
    NodeFacts,
    PlaceOrder,
    RepairOrder,
    UnloadOrder,
    decide_create,
    decide_delete,
    decide_keep,
    decide_place,
    decide_repair,
    decide_unload,
    with_facts,
)
from skulkd.placement.promises import TeardownCredits, free_ram, free_vram
from skulkd.placement.refusals import Refusal, UnknownInstance
from skulkd.wire.cards import ModelCard
from skulkd.wire.events import InstanceDeleted
from skulkd.wire.ids import NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.state import State

PLACE, CREATE, DELETE = "instance.place", "instance.create", "instance.delete"
REPAIR, KEEP, UNLOAD = "instance.repair", "instance.keep", "instance.unload"
FACTS = "placement.news"
FACTS_DEADLINE_S = 3.0
DECIDE_DEADLINE_S = 9.0

log = logging.getLogger(__name__)

OwnFacts = Callable[[str], Awaitable[NodeFacts]]


class CommandRefused(Refusal):
    """A command that the master refused; keeps the kind, text and data of the refusal."""

    def __init__(self, refused: PeerRefused) -> None:
        try:
            details = json.loads(refused.data)
        except ValueError:
            details = {}
        if not isinstance(details, dict):
            details = {}
        super().__init__(str(refused), details.get("hints", ()), details.get("data"))
        self.kind = refused.kind
        self.pending = refused.kind == NO_MASTER or bool(details.get("pending", False))


class Placements:
    """Orders about instances, and what the planner has to know besides the state."""

    def __init__(
        self,
        state: StateView,
        replica: Replica,
        journal: Journal,
        peers: Peers,
        commands: Commands,
        own_facts: OwnFacts,
        draining: Callable[[], Collection[NodeId]] = frozenset,
    ) -> None:
        self._state = state
        self._replica = replica
        self._peers = peers
        self._send = commands.send
        self._own_facts = own_facts
        self._draining = draining
        self._credits = TeardownCredits(time.monotonic, lambda: free_ram(state.current()))
        self._vram_credits = TeardownCredits(time.monotonic, lambda: free_vram(state.current()))
        journal.on_change(lambda: self._credits.watch(replica.state))
        journal.on_change(lambda: self._vram_credits.watch(replica.state))
        peers.serve(FACTS, self._answer_facts)
        for kind in (PLACE, CREATE, DELETE, REPAIR, KEEP, UNLOAD):
            commands.register(kind, self._decision(kind))

    def state(self) -> State:
        """The merged state at this moment."""
        return self._state.current()

    def inputs(self, state: State | None = None) -> PlanInputs:
        """What the planner needs and the state does not contain, at this moment."""
        now = state or self._replica.state
        return PlanInputs(
            draining=frozenset(self._draining()),
            credits=self._credits.available(now),
            vram_credits=self._vram_credits.available(now),
            rdma=self._state.rdma(),
            wired_limits=self._state.wired_limits(),
        )

    async def node_facts(self, model_id: str) -> dict[NodeId, NodeFacts]:
        """What every node reports about itself and this model; silent nodes are left out."""
        own = await self._own_facts(model_id)
        found = {self._peers.node_id: own}
        body = json.dumps({"modelId": model_id}).encode()
        for asked in await ask_others(self._peers, FACTS, body, deadline_s=FACTS_DEADLINE_S):
            if asked.answer is None:
                log.info("no placement facts from a node: %s", asked.error)
                continue
            try:
                found[asked.peer.node_id] = NodeFacts.model_validate_json(asked.answer)
            except ValidationError as error:
                log.warning("unreadable placement facts from %s: %s", asked.peer.node_id, error)
        return found

    def view(self, order: PlaceOrder) -> tuple[State, Cluster]:
        """The state as this node sees it, and the planner's view of it."""
        state = self.state()
        return state, cluster_of(state, order.card.model_id, with_facts(self.inputs(), order.news))

    def nearest(
        self, refusal: Refusal, order: PlaceOrder, smaller: Sequence[ModelCard]
    ) -> list[Alternative]:
        """What would work instead of an order that was refused."""
        state, cluster = self.view(order)
        return alternatives(refusal, order.wish, cluster, state, smaller)

    async def place(self, order: PlaceOrder) -> Instance:
        """Raises Refusal."""
        # A master of an older version refuses keys that it does not know.
        return await self._order(PLACE, order, exclude=set() if order.ensure else {"ensure"})

    async def create(self, order: CreateOrder) -> Instance:
        """Raises Refusal."""
        return await self._order(CREATE, order)

    async def delete(self, order: DeleteOrder) -> Instance:
        """Raises Refusal."""
        return await self._order(DELETE, order)

    async def keep(self, order: KeepOrder) -> Instance:
        """Raises Refusal."""
        return await self._order(KEEP, order)

    async def unload(self, order: UnloadOrder) -> Instance:
        """Raises Refusal."""
        return await self._order(UNLOAD, order)

    async def repair(self, instance: Instance) -> Instance:
        """Move an instance that has failed where it is. Raises Refusal."""
        facts = await self.node_facts(instance.shard_assignments.model_id)
        return await self._order(REPAIR, RepairOrder(instance_id=instance.instance_id, news=facts))

    def decide(self, kind: str, body: bytes, journal: JournalReplica) -> Decided:
        """The master's decision about an order. Raises Refusal."""
        if kind == DELETE:
            return _delete(DeleteOrder.model_validate_json(body), journal)
        if kind == KEEP:
            return decide_keep(KeepOrder.model_validate_json(body), journal.state)
        if kind == UNLOAD:
            return decide_unload(UnloadOrder.model_validate_json(body), journal.state)
        state, inputs = self._state.over(journal.state), self.inputs(journal.state)
        if kind == PLACE:
            return decide_place(PlaceOrder.model_validate_json(body), state, inputs)
        if kind == CREATE:
            return decide_create(CreateOrder.model_validate_json(body), state, inputs)
        return decide_repair(RepairOrder.model_validate_json(body), state, inputs)

    def _decision(self, kind: str) -> Decide:
        def decide(body: bytes, journal: JournalReplica) -> Decision:
            try:
                decided = self.decide(kind, body, journal)
            except Refusal as refusal:
                raise as_peer_refused(refusal, self._peers.node_id) from refusal
            answer = CreateOrder(instance=decided.instance).model_dump_json().encode()
            return Decision(decided.events, answer)

        return decide

    async def _order(
        self, kind: str, order: BaseModel, exclude: set[str] | None = None
    ) -> Instance:
        body = order.model_dump_json(exclude=exclude).encode()
        try:
            answer = await self._send(kind, body, DECIDE_DEADLINE_S)
        except PeerRefused as refused:
            raise CommandRefused(refused) from refused
        return CreateOrder.model_validate_json(answer).instance

    async def _answer_facts(self, _asker: NodeId, body: bytes) -> bytes:
        facts = await self._own_facts(str(json.loads(body).get("modelId", "")))
        return facts.model_dump_json().encode()


def as_peer_refused(refusal: Refusal, me: NodeId) -> PeerRefused:
    """The refusal for another node, which makes a `CommandRefused` of it."""
    details = {"hints": list(refusal.hints), "data": refusal.data, "pending": refusal.pending}
    return PeerRefused(me, refusal.kind, str(refusal), json.dumps(details).encode())


def _delete(order: DeleteOrder, journal: JournalReplica) -> Decided:
    """Also an instance that lost its node and is not in the state while it waits for another."""
    try:
        return decide_delete(order, journal.state)
    except UnknownInstance:
        unplaced = journal.unplaced.get(order.instance_id)
        if unplaced is None:
            raise
        return Decided((InstanceDeleted(instance_id=order.instance_id),), unplaced.instance)
