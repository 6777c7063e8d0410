"""Loading on demand: a request for a known model that is not placed has it placed.

Any node asks the master, which places one model at a time: requests of several nodes for the same
model make one instance, and each placement sees the memory that earlier ones got. When memory is
short, the master first unloads instances that were placed on demand and are idle.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Literal

from skulkd.cluster.commands import NO_MASTER
from skulkd.cluster.commits import NOT_MASTER
from skulkd.peers import PeerError, PeerRefused, Peers
from skulkd.placement.orders import PlaceOrder
from skulkd.placement.refusals import DoesNotFit, Refusal, RoomLater
from skulkd.placement.unloading import on_demand_instances, unloadable, victims
from skulkd.scheduling.place_orders import place_order
from skulkd.scheduling.placements import CommandRefused, Placements, as_peer_refused
from skulkd.scheduling.unloads import Unloads, on_demand
from skulkd.store.local_models import LocalModels
from skulkd.wire.cards import ModelCard
from skulkd.wire.config import ModelsSection
from skulkd.wire.durations import keep_alive_s
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.instances import Instance
from skulkd.wire.placement import PlaceInstanceParams

LOAD = "models.load"
LOAD_DEADLINE_S = 60.0
MASTER_S = 10.0
"""How long a request waits for a master."""
PENDING_S = 8.0
"""For readings that the planner needs and that have not arrived yet."""
POLL_S = 0.2
ROUNDS = 3
"""So often the master makes room for one order; a reading may differ from the plan."""

LoadResult = Literal["placed", "refused"]
log = logging.getLogger(__name__)


class OnDemandLoads:
    """`load` is for requests on any node; the rest runs on the master."""

    def __init__(
        self,
        settings: ModelsSection,
        placements: Placements,
        models: LocalModels,
        unloads: Unloads,
        peers: Peers,
        master: Callable[[], NodeId | None],
    ) -> None:
        self._settings = settings
        self._placements = placements
        self._models = models
        self._unloads = unloads
        self._peers = peers
        self._master = master
        self._loading: dict[str, asyncio.Task[bool]] = {}
        self._one_at_a_time = asyncio.Lock()
        self.counts: Counter[LoadResult] = Counter()
        """Of what this node asked for."""
        peers.serve(LOAD, self._answer_load)

    @property
    def enabled(self) -> bool:
        return self._settings.on_demand

    async def load(self, model: str, keep_s: float | None = None) -> bool:
        """Place a model unless it is placed. False: no such model is known. Raises Refusal.

        Requests of this node for the same model share one order.
        """
        if (loading := self._loading.get(model)) is None:
            loading = asyncio.create_task(self._load(model, keep_s))
            self._loading[model] = loading
            loading.add_done_callback(lambda done: self._loaded(model, done))
        return await asyncio.shield(loading)

    def keep(self, instance: Instance, keep_s: float) -> None:
        self._unloads.keep(instance, keep_s)

    def _loaded(self, model: str, done: asyncio.Task[bool]) -> None:
        self._loading.pop(model, None)
        if done.cancelled():
            return
        # Also retrieves the error where every client has gone meanwhile.
        if done.exception() is not None:
            self.counts["refused"] += 1
        elif done.result():
            self.counts["placed"] += 1

    async def _load(self, model: str, keep_s: float | None) -> bool:
        card = await self._known_card(model)
        if card is None:
            return False
        if keep_s is None:
            keep_s = keep_alive_s(self._settings.idle_ttl)
        wanted = PlaceInstanceParams(model_id=card.model_id)
        order = await place_order(self._placements, self._models, wanted, card)
        update = {"ensure": True, "on_demand": on_demand(keep_s)}
        await self._ask_master(order.model_copy(update=update))
        return True

    async def _known_card(self, model: str) -> ModelCard | None:
        """The card of a model whose files a node or the store has. Others would be downloaded."""
        downloads = self._placements.state().downloads.values()
        offered = {
            entry.shard_metadata.model_card.model_id for entries in downloads for entry in entries
        }
        if model not in offered and await self._models.why_not_here(model) is not None:
            return None
        return (await self._models.catalogue()).get(model)

    async def _ask_master(self, order: PlaceOrder) -> None:
        """Raises Refusal."""
        body = order.model_dump_json().encode()
        started = time.monotonic()
        gives_up_at = started + MASTER_S
        while time.monotonic() < gives_up_at:
            master = self._master()
            if master is not None:
                try:
                    await self._peers.ask(master, LOAD, body, deadline_s=LOAD_DEADLINE_S)
                except PeerRefused as refused:
                    if refused.kind != NOT_MASTER:
                        raise CommandRefused(refused) from refused
                except PeerError as error:
                    log.info("asking the master for %s again: %s", order.card.model_id, error)
                    gives_up_at = min(time.monotonic() + MASTER_S, started + LOAD_DEADLINE_S)
                else:
                    return
            await asyncio.sleep(POLL_S)
        message = f"no master answered in {MASTER_S:g} s; try again"
        raise CommandRefused(PeerRefused(self._peers.node_id, NO_MASTER, message))

    # --- on the master ---

    async def _answer_load(self, _asker: NodeId, body: bytes) -> bytes:
        me = self._peers.node_id
        if self._master() != me:
            raise PeerRefused(me, NOT_MASTER, f"{me} is not the master")
        order = PlaceOrder.model_validate_json(body)
        try:
            async with self._one_at_a_time:
                instance = await self._placed(order)
        except Refusal as refusal:
            log.info("cannot place %s on demand: %s", order.card.model_id, refusal)
            raise as_peer_refused(refusal, me) from refusal
        return instance.instance_id.encode()

    async def _placed(self, order: PlaceOrder) -> Instance:
        """Raises Refusal."""
        gives_up_at = time.monotonic() + PENDING_S
        rounds = 0
        while True:
            try:
                instance = await self._placements.place(order)
            except Refusal as refusal:
                if refusal.kind == DoesNotFit.__name__ and rounds < ROUNDS:
                    rounds += 1
                    await self._make_room(order, refusal)
                elif refusal.pending and time.monotonic() < gives_up_at:
                    await asyncio.sleep(POLL_S)
                else:
                    raise
            else:
                if instance.instance_id == order.instance_id:
                    log.info("placed %s on demand (%s)", order.card.model_id, instance.instance_id)
                return instance

    async def _make_room(self, order: PlaceOrder, refusal: Refusal) -> None:
        """Unload what is in the way. Raises the refusal, or RoomLater, when nothing may go."""
        state = self._placements.state()
        going = victims(order, state, self._placements.inputs(), self._unloads.uses)
        if not going:
            idle = unloadable(state, self._unloads.uses)
            in_use = len(on_demand_instances(state)) > len(idle)
            raise RoomLater(refusal) if in_use else refusal
        model_id = ModelId(order.card.model_id)
        for instance in going:
            if not await self._unloads.unload(instance, "memory", wanted_by=model_id):
                return  # It has work after all; the next round chooses anew.
