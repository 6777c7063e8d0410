"""Cards for models without one: made from a `config.json` in the store, in staging or on the hub.

With a store its host asks the hub, because it would download the model, too.
"""

import asyncio
from dataclasses import dataclass

from skulkd.store.cards.from_config import card_of_config
from skulkd.store.client.store_client import StoreClient
from skulkd.store.config import StoreConfig
from skulkd.store.errors import UnknownModelError
from skulkd.store.hub.child import HubCards
from skulkd.store.model_ids import check_model_id, directory_name
from skulkd.wire.cards import ModelCard


@dataclass(frozen=True, slots=True)
class CardLookup:
    """`client` is None without a store."""

    config: StoreConfig
    hub: HubCards
    client: StoreClient | None = None

    async def find(self, model_id: str) -> ModelCard:
        """Raises StoreError."""
        if self.client is None or self.config.is_host:
            return await self.find_as_host(model_id)
        local = await asyncio.to_thread(self._on_disk, model_id)
        return local or await self.client.card(model_id)

    async def find_as_host(self, model_id: str) -> ModelCard:
        """Without asking a store host, on which this runs for other nodes. Raises StoreError."""
        local = await asyncio.to_thread(self._on_disk, model_id)
        if local is not None:
            return local
        store = self.config.store
        if store is not None and not store.download.allow_hf_fallback:
            raise UnknownModelError(
                "it is not in the store, and the store may not use the hub"
                " (model_store.download.allow_hf_fallback)"
            )
        return await self.hub.describe(model_id)

    def _on_disk(self, model_id: str) -> ModelCard | None:
        """Raises StoreError when there is a config.json that cannot be used."""
        check_model_id(model_id)
        area = self.config.area
        roots = [self.config.store_root, None if area is None else area.root]
        paths = [root / directory_name(model_id) for root in roots if root is not None]
        cards = (card_of_config(path, model_id) for path in paths)
        return next((card for card in cards if card is not None), None)
