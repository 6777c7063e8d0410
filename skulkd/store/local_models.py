"""Cards and files of the models on this node, for callers on the event loop.

The blocking calls of the store run in a thread, one at a time and with a time limit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from skulkd.settings.paths import Paths
from skulkd.store.cards.catalogue import (
    CardCatalogue,
    CardEntry,
    delete_custom_card,
    load_cards,
    save_custom_card,
)
from skulkd.store.errors import FileAccessError
from skulkd.store.library import LocalModel, ModelLibrary
from skulkd.store.model_directory import CONFIG_FILE
from skulkd.wire.cards import ModelCard

DISK_DEADLINE_S = 9.0

T = TypeVar("T")


class ModelsUnavailable(Exception):
    """The models directory cannot be read: it timed out, or access was denied."""

    def __init__(self, message: str, *, timed_out: bool) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class LocalModels:
    """Reads the disk at every call, so a model that was just imported is found."""

    def __init__(
        self,
        paths: Paths,
        library: ModelLibrary,
        deadline_s: float = DISK_DEADLINE_S,
        remote_cards: Callable[[], Iterable[ModelCard]] = tuple,
    ) -> None:
        self._paths = paths
        self._remote_cards = remote_cards
        self._library = library
        self._deadline_s = deadline_s
        self._lock = asyncio.Lock()

    async def catalogue(self) -> CardCatalogue:
        """Cards known here, and those of models that only other nodes or the store have."""
        own = await self._run(lambda: load_cards(self._paths, self._library))
        return own.with_others(self._remote_cards())

    async def list(self) -> tuple[LocalModel, ...]:
        return await self._run(self._library.list)

    async def why_not_here(self, model_id: str) -> str | None:
        """None when the model's files are complete; else what is wrong with them."""

        def check() -> str | None:
            if self._library.find(model_id) is not None:
                return None
            return self._library.problem(model_id) or f"{model_id} has no files on this node"

        return await self._run(check)

    async def config(self, model_id: str) -> Mapping[str, Any]:
        """The config.json of a model; empty when it is not here or cannot be read."""

        def read() -> Mapping[str, Any]:
            found = self._library.find(model_id)
            if found is None:
                return {}
            try:
                config = json.loads((found / CONFIG_FILE).read_bytes())
            except (OSError, ValueError):
                return {}
            return config if isinstance(config, dict) else {}

        return await self._run(read)

    async def problem(self, model_id: str) -> str | None:
        """What is wrong with the model's files; None when there are none, or they are fine."""
        return await self._run(lambda: self._library.problem(model_id))

    async def save_card(self, card: ModelCard) -> CardEntry:
        return await self._run(lambda: save_custom_card(self._paths, card))

    async def delete_card(self, model_id: str) -> None:
        """Raises UnknownModelError."""
        await self._run(
            lambda: delete_custom_card(load_cards(self._paths, self._library), model_id)
        )

    async def _run(self, work: Callable[[], T]) -> T:
        """Raises ModelsUnavailable."""
        job = asyncio.create_task(self._in_thread(work))
        job.add_done_callback(_retrieve_error)
        done, _ = await asyncio.wait({job}, timeout=self._deadline_s)
        if not done:
            message = f"the models directory did not answer within {self._deadline_s:g} s"
            raise ModelsUnavailable(message, timed_out=True)
        try:
            return job.result()
        except FileAccessError as error:
            raise ModelsUnavailable(error.message, timed_out=False) from error

    async def _in_thread(self, work: Callable[[], T]) -> T:
        # The lock bounds a hanging disk to one thread; later calls wait for the lock.
        async with self._lock:
            return await asyncio.to_thread(work)


def _retrieve_error(job: asyncio.Task[T]) -> None:
    # The caller may have timed out; asyncio reports errors that nobody retrieves as bugs.
    if not job.cancelled():
        job.exception()
