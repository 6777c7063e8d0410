"""Keeps `/state.downloads` up to date: which models are on this node, and which the store offers.

Files change without the daemon (imports, deletions by hand, another disk), so the disk and the
store are read periodically. Only differences become events.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from skulkd.store.cards.catalogue import card_of_model
from skulkd.store.client.store_client import StoreClient, StoreModel
from skulkd.store.config import StoreConfig
from skulkd.store.errors import StoreError
from skulkd.store.library import LocalModel, ModelLibrary
from skulkd.store.model_ids import unchecked_directory_name
from skulkd.store.staging.manager import StagingManager
from skulkd.store.staging.progress import (
    DownloadEntry,
    is_placeholder,
    model_id_of,
    whole_model_shard,
)
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

INTERVAL_S = 10.0
STARTING_INTERVAL_S = 2.0
STORE_INTERVAL_S = 30.0
REPEAT_S = 20.0
"""An event may take a while to become part of the state, or be lost with a master."""

_Entries = dict[ModelId, DownloadProgress]


@dataclass(slots=True)
class InventoryPublisher:
    """`run` refreshes periodically, `refresh_soon` wakes it up."""

    node_id: NodeId
    config: StoreConfig
    library: ModelLibrary
    staging: StagingManager
    client: StoreClient | None
    state: Callable[[], State]
    publish: Callable[[DownloadProgress], None]
    clock: Callable[[], float] = time.monotonic
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _published: dict[ModelId, tuple[DownloadProgress, float]] = field(default_factory=dict)
    _offered: list[StoreModel] = field(default_factory=list)
    _store_read_at: float | None = None

    def refresh_soon(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self.refresh()
            except StoreError as error:
                log.warning("cannot list model files: %s", error.message)
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        """Publish what differs from the state."""
        wanted = await self._entries()
        entries = self.state().downloads.get(self.node_id, ())
        known = {model_id_of(entry): entry for entry in entries}
        complete = await asyncio.to_thread(self._complete_copies)
        for model_id, entry in known.items():
            # Companions are complete copies, but no models of their own.
            gone = model_id not in wanted and unchecked_directory_name(model_id) not in complete
            if gone and isinstance(entry, DownloadCompleted | DownloadOngoing):
                wanted[model_id] = self._entry(entry.shard_metadata.model_card).pending(0)
        staging = {card.model_id for card in self.staging.active}
        for model_id, entry in wanted.items():
            if model_id not in staging:
                self._publish_change(entry, known.get(model_id))

    async def refresh_from_store(self) -> None:
        """The same, reading the store now: a model was just added to it."""
        self._store_read_at = None
        await self.refresh()

    def forget(self, name: str) -> None:
        """Publish at once that a copy was deleted."""
        for entry in self.state().downloads.get(self.node_id, ()):
            model_id = model_id_of(entry)
            deleted = unchecked_directory_name(model_id) == name
            if deleted and not isinstance(entry, DownloadPending):
                offers = [o.total_bytes for o in self._offered if o.card.model_id == model_id]
                card = entry.shard_metadata.model_card
                self.publish(self._entry(card).pending(next(iter(offers), 0)))
        self.refresh_soon()

    def cards(self) -> list[ModelCard]:
        """Cards of models that some node has or could get, for the catalogue."""
        entries = (entry for entries in self.state().downloads.values() for entry in entries)
        return [entry.shard_metadata.model_card for entry in entries if not is_placeholder(entry)]

    @property
    def _reads_store(self) -> bool:
        staged = self.config.area is not None and not self.config.is_host
        return self.client is not None and staged

    @property
    def _interval_s(self) -> float:
        waiting = self._reads_store and self._store_read_at is None
        return STARTING_INTERVAL_S if waiting else INTERVAL_S

    async def _entries(self) -> _Entries:
        """What the state should show of models that are here or in the store."""
        local = await asyncio.to_thread(self._local_models)
        await self._read_store()
        entries: _Entries = {}
        for offer in self._offered:
            entries[offer.card.model_id] = self._entry(offer.card).pending(offer.total_bytes)
        for model, card in local:
            entry = DownloadEntry(self.node_id, whole_model_shard(card), str(model.path))
            read_only = model.read_only and not self._is_staged(model)
            entries[card.model_id] = entry.completed(model.size_bytes, read_only=read_only)
        return entries

    def _entry(self, card: ModelCard) -> DownloadEntry:
        path = self.config.download_root / unchecked_directory_name(card.model_id)
        return DownloadEntry(self.node_id, whole_model_shard(card), str(path))

    def _is_staged(self, model: LocalModel) -> bool:
        return self.config.area is not None and model.path.parent == self.config.area.root

    def _local_models(self) -> list[tuple[LocalModel, ModelCard]]:
        found = ((model, card_of_model(model)) for model in self.library.list())
        return [(model, card) for model, card in found if card is not None]

    def _complete_copies(self) -> set[str]:
        area = self.config.area
        return set() if area is None else {copy.name for copy in area.copies() if copy.complete}

    async def _read_store(self) -> None:
        last = self._store_read_at
        due = last is None or self.clock() - last >= STORE_INTERVAL_S
        if self.client is None or not self._reads_store or not due:
            return
        try:
            self._offered = await self.client.catalogue()
        except StoreError as error:
            log.debug("cannot read the store's catalogue: %s", error.message)
            self._store_read_at = None
        else:
            self._store_read_at = self.clock()

    def _publish_change(self, wanted: DownloadProgress, known: DownloadProgress | None) -> None:
        model_id = model_id_of(wanted)
        if known == wanted or _may_stay(known, wanted):
            self._published.pop(model_id, None)
            return
        entry, at = self._published.get(model_id, (None, 0.0))
        if entry == wanted and self.clock() - at < REPEAT_S:
            return
        self._published[model_id] = (wanted, self.clock())
        self.publish(wanted)


def _may_stay(known: DownloadProgress | None, wanted: DownloadProgress) -> bool:
    """Whether the entry in the state may stay, although it differs."""
    if isinstance(known, DownloadFailed) and isinstance(wanted, DownloadPending):
        return True  # the reason of the failure is worth more than "pending"
    same_place = known is not None and known.model_directory == wanted.model_directory
    both_here = isinstance(known, DownloadCompleted) and isinstance(wanted, DownloadCompleted)
    return same_place and both_here
