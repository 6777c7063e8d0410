"""Keeps `/state.downloads` true for this node: what is here, and what the store could give it.

Files come and go without us (imports, deletions by hand, another disk), so the disk and the store
are looked at again and again. Only differences become events.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from skulkd.store.card_of_directory import card_of
from skulkd.store.errors import StoreError
from skulkd.store.library import LocalModel, ModelLibrary
from skulkd.store.progress_events import Entry, bare_card, model_of, whole_model
from skulkd.store.setup import StoreSetup
from skulkd.store.staging import Staging
from skulkd.store.store_calls import Described, StoreCalls
from skulkd.store.uses import name_of
from skulkd.wire.cards import ModelCard
from skulkd.wire.downloads import (
    DownloadCompleted,
    DownloadFailed,
    DownloadOngoing,
    DownloadPending,
    DownloadProgress,
)
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.state import State

log = logging.getLogger(__name__)

LOOK_S = 10.0
SOON_S = 2.0
STORE_LOOK_S = 30.0
REPEAT_S = 20.0
"""An event may take a while to come back as state, or be lost with a master."""


@dataclass(slots=True)
class Announcer:
    """`run` it beside the node; `look` makes it hurry."""

    node_id: NodeId
    setup: StoreSetup
    library: ModelLibrary
    staging: Staging
    calls: StoreCalls | None
    state: Callable[[], State]
    publish: Callable[[DownloadProgress], None]
    clock: Callable[[], float] = time.monotonic
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _told: dict[ModelId, tuple[DownloadProgress, float]] = field(default_factory=dict)
    _offered: list[Described] = field(default_factory=list)
    _asked_store_at: float | None = None

    @property
    def _knows_store(self) -> bool:
        """Whether the store was heard lately, or need not be: a host may still be starting."""
        asks = self.calls is not None and not self.setup.is_host and self.setup.area is not None
        return not asks or self._asked_store_at is not None

    def look(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self.look_now()
            except StoreError as error:
                log.warning("model files cannot be listed: %s", error.message)
            try:
                async with asyncio.timeout(LOOK_S if self._knows_store else SOON_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def look_now(self) -> None:
        """Publish what differs from the state."""
        here = await asyncio.to_thread(self._local)
        await self._ask_store()
        wanted: dict[ModelId, DownloadProgress] = {}
        for offer in self._offered:
            wanted[offer.card.model_id] = self._entry(offer.card).pending(offer.total_bytes)
        for model, card in here:
            at = Entry(self.node_id, whole_model(card), str(model.path))
            read_only = model.read_only and not self._is_staged(model)
            wanted[card.model_id] = at.completed(model.size_bytes, read_only=read_only)
        known = {model_of(entry): entry for entry in self.state().downloads.get(self.node_id, ())}
        moving = {card.model_id for card in self.staging.moving}
        whole = await asyncio.to_thread(self._whole_copies)
        for model_id, entry in known.items():
            # Files that are gone and that nobody offers. Companions are no models of their own.
            gone = model_id not in wanted and name_of(model_id) not in whole
            if gone and isinstance(entry, DownloadCompleted | DownloadOngoing):
                card = entry.shard_metadata.model_card
                wanted[model_id] = self._entry(card).pending(0)
        for model_id, entry in wanted.items():
            if model_id not in moving:
                self._tell(entry, known.get(model_id))

    async def look_at_store(self) -> None:
        """The same, with what the store has now: something was just added to it."""
        self._asked_store_at = None
        await self.look_now()

    def forget(self, name: str) -> None:
        """A copy was deleted: say so at once."""
        for entry in self.state().downloads.get(self.node_id, ()):
            model_id = model_of(entry)
            if name_of(model_id) == name and not isinstance(entry, DownloadPending):
                offers = [o.total_bytes for o in self._offered if o.card.model_id == model_id]
                card = entry.shard_metadata.model_card
                self.publish(self._entry(card).pending(next(iter(offers), 0)))
        self.look()

    def cards(self) -> list[ModelCard]:
        """Cards of models that some node has or could get, for the catalogue."""
        entries = (entry for entries in self.state().downloads.values() for entry in entries)
        cards = [entry.shard_metadata.model_card for entry in entries]
        return [card for card in cards if card != bare_card(card.model_id)]

    def _entry(self, card: ModelCard) -> Entry:
        root = self.setup.models if self.setup.area is None else self.setup.area.root
        return Entry(self.node_id, whole_model(card), str(root / name_of(card.model_id)))

    def _is_staged(self, model: LocalModel) -> bool:
        return self.setup.area is not None and model.path.parent == self.setup.area.root

    def _local(self) -> list[tuple[LocalModel, ModelCard]]:
        found = ((model, card_of(model)) for model in self.library.list())
        return [(model, card) for model, card in found if card is not None]

    def _whole_copies(self) -> set[str]:
        area = self.setup.area
        return set() if area is None else {copy.name for copy in area.copies() if copy.complete}

    async def _ask_store(self) -> None:
        due = self._asked_store_at is None or self.clock() - self._asked_store_at >= STORE_LOOK_S
        if self.calls is None or self.setup.is_host or self.setup.area is None or not due:
            return
        try:
            self._offered = await self.calls.catalogue()
        except StoreError as error:
            log.debug("the store does not tell what it has: %s", error.message)
            self._asked_store_at = None
        else:
            self._asked_store_at = self.clock()

    def _tell(self, wanted: DownloadProgress, known: DownloadProgress | None) -> None:
        model_id = model_of(wanted)
        if known == wanted or _is_news_enough(known, wanted):
            self._told.pop(model_id, None)
            return
        told = self._told.get(model_id)
        if told is not None and told[0] == wanted and self.clock() - told[1] < REPEAT_S:
            return
        self._told[model_id] = (wanted, self.clock())
        self.publish(wanted)


def _is_news_enough(known: DownloadProgress | None, wanted: DownloadProgress) -> bool:
    """Whether what the state says may stand, though it is spelled differently."""
    if isinstance(known, DownloadFailed) and isinstance(wanted, DownloadPending):
        return True  # why the last attempt failed matters more than that it could be tried again
    same_place = known is not None and known.model_directory == wanted.model_directory
    both_here = isinstance(known, DownloadCompleted) and isinstance(wanted, DownloadCompleted)
    return same_place and both_here
