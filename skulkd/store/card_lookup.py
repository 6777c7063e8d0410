"""Cards for models that nobody has a card of: made from a `config.json`, wherever it can be read.

Looked for in the store and the staging area, then at the hub. With a store its host asks the
hub, because it would fetch the model, too. Must not know of HTTP.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from skulkd.store.card_of_directory import card_of_config
from skulkd.store.errors import DownloadError, StoreError, UnknownModelError
from skulkd.store.model_ids import check_model_id, directory_name
from skulkd.store.setup import StoreSetup
from skulkd.store.store_calls import StoreCalls
from skulkd.store.store_child import child_events
from skulkd.wire.cards import ModelCard

DESCRIBE_S = 20.0
KEEP_S = 300.0
UNREACHABLE_S = 15.0
MOST_KEPT = 200


@dataclass(slots=True)
class HubCards:
    """Asks the hub for one model at a time, and remembers its answers for a while.

    After a failure to reach it the next ones fail at once: each question costs a process.
    """

    environ: Mapping[str, str]
    token: str | None = None
    offline: bool = False
    clock: Callable[[], float] = time.monotonic
    _known: dict[str, tuple[ModelCard, float]] = field(default_factory=dict)
    _unreachable: tuple[DownloadError, float] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def describe(self, model_id: str) -> ModelCard:
        """Raises StoreError."""
        check_model_id(model_id)
        if self.offline:
            raise DownloadError("this node may not ask the hub (SKULK_OFFLINE)")
        async with self._lock:
            now = self.clock()
            known = self._known.get(model_id)
            if known is not None and now - known[1] < KEEP_S:
                return known[0]
            if self._unreachable is not None and now - self._unreachable[1] < UNREACHABLE_S:
                raise self._unreachable[0]
            card = await self._ask(model_id)
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[model_id] = (card, self.clock())
            return card

    async def _ask(self, model_id: str) -> ModelCard:
        last: dict[str, Any] = {}
        try:
            async with asyncio.timeout(DESCRIBE_S):
                arguments = ["describe", model_id]
                async with aclosing(child_events(arguments, self.environ, self.token)) as events:
                    async for event in events:
                        last = event
        except TimeoutError:
            last = {"kind": "hub_unreachable", "message": f"no answer within {DESCRIBE_S:g} s"}
        if last.get("event") == "done":
            return _read_card(last.get("card"), model_id)
        message = str(last.get("message") or "the process that asks the hub ended early")
        if last.get("kind") == "unknown_model":
            raise UnknownModelError(message)
        error = DownloadError(message)
        if last.get("kind") == "hub_unreachable":
            self._unreachable = (error, self.clock())
        raise error


@dataclass(frozen=True, slots=True)
class CardLookup:
    """`calls` is None without a store."""

    setup: StoreSetup
    hub: HubCards
    calls: StoreCalls | None = None

    async def find(self, model_id: str) -> ModelCard:
        """Raises StoreError that says where it was looked for."""
        check_model_id(model_id)
        here = await asyncio.to_thread(self.on_disk, model_id)
        if here is not None:
            return here
        if self.calls is not None and not self.setup.is_host:
            return await self.calls.card(model_id)
        return await self.from_hub(model_id)

    def on_disk(self, model_id: str) -> ModelCard | None:
        """Blocking. Raises StoreError when a config.json is there and cannot be used."""
        area = self.setup.area
        roots = [self.setup.store_root, None if area is None else area.root]
        places = [root / directory_name(model_id) for root in roots if root is not None]
        cards = (card_of_config(place, model_id) for place in places)
        return next((card for card in cards if card is not None), None)

    async def from_hub(self, model_id: str) -> ModelCard:
        """What the hub says, where asking it is allowed. Raises StoreError."""
        store = self.setup.store
        if store is not None and not store.download.allow_hf_fallback:
            raise UnknownModelError(
                "it is not in the store, and the store may not ask the hub"
                " (model_store.download.allow_hf_fallback)"
            )
        return await self.hub.describe(model_id)

    async def answer(self, model_id: str) -> ModelCard:
        """For another node that asks this store host. Raises StoreError."""
        here = await asyncio.to_thread(self.on_disk, model_id)
        return here or await self.from_hub(model_id)


def _read_card(document: object, model_id: str) -> ModelCard:
    try:
        card = ModelCard.model_validate(document)
    except ValidationError as error:
        raise StoreError(f"the card made of {model_id} cannot be read") from error
    return card
