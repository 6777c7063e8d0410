"""Cards and files of models, for handlers: the store's blocking calls in a thread, with a limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import TypeVar

from skulkd.api.errors import ApiError
from skulkd.placement.shape import UNKNOWN_SHAPE, ModelShape, shape_from_config
from skulkd.settings.paths import Paths
from skulkd.store.cards import (
    CardCatalogue,
    CardEntry,
    delete_custom_card,
    load_cards,
    save_custom_card,
)
from skulkd.store.errors import FileAccessError
from skulkd.store.library import LocalModel, ModelLibrary
from skulkd.store.model_documents import CONFIG_FILE
from skulkd.wire.cards import ModelCard

DISK_DEADLINE_S = 9.0

T = TypeVar("T")


class ModelShelf:
    """Looks at the disk every time, so a model that was just imported is seen."""

    def __init__(
        self,
        paths: Paths,
        library: ModelLibrary,
        deadline_s: float = DISK_DEADLINE_S,
        elsewhere: Callable[[], Iterable[ModelCard]] = tuple,
    ) -> None:
        self._paths = paths
        self._elsewhere = elsewhere
        self._library = library
        self._deadline_s = deadline_s
        self._lock = asyncio.Lock()

    async def catalogue(self) -> CardCatalogue:
        """Cards known here, and those of models that only other nodes or the store have."""
        own = await self._run(lambda: load_cards(self._paths, self._library))
        return own.with_others(self._elsewhere())

    async def local_models(self) -> tuple[LocalModel, ...]:
        return await self._run(self._library.list)

    async def why_not_here(self, model_id: str) -> str | None:
        """None when the model's files are complete; else what is wrong with them."""

        def look() -> str | None:
            if self._library.find(model_id) is not None:
                return None
            return self._library.problem(model_id) or f"{model_id} has no files on this node"

        return await self._run(look)

    async def shape(self, model_id: str) -> ModelShape:
        """What the files of a model that is here say of its inside."""

        def look() -> ModelShape:
            found = self._library.find(model_id)
            if found is None:
                return UNKNOWN_SHAPE
            try:
                config = json.loads((found / CONFIG_FILE).read_bytes())
            except (OSError, ValueError):
                return UNKNOWN_SHAPE
            return shape_from_config(config) if isinstance(config, dict) else UNKNOWN_SHAPE

        return await self._run(look)

    async def problem(self, model_id: str) -> str | None:
        """What is wrong with files that are there; None when there are none, or they are fine."""
        return await self._run(lambda: self._library.problem(model_id))

    async def keep_card(self, card: ModelCard) -> CardEntry:
        return await self._run(lambda: save_custom_card(self._paths, card))

    async def drop_card(self, model_id: str) -> None:
        """Raises UnknownModelError."""
        await self._run(
            lambda: delete_custom_card(load_cards(self._paths, self._library), model_id)
        )

    async def _run(self, work: Callable[[], T]) -> T:
        job = asyncio.create_task(self._alone(work))
        job.add_done_callback(_look_at_error)
        done, _ = await asyncio.wait({job}, timeout=self._deadline_s)
        if not done:
            message = f"the models directory did not answer within {self._deadline_s:g} s"
            raise ApiError(503, message)
        try:
            return job.result()
        except FileAccessError as error:
            raise ApiError(500, error.message) from error

    async def _alone(self, work: Callable[[], T]) -> T:
        # A disk that hangs costs one thread, not all of them: who comes later waits for the lock.
        async with self._lock:
            return await asyncio.to_thread(work)


def _look_at_error(job: asyncio.Task[T]) -> None:
    # Who waited may have given up; an error nobody looks at would be reported as a bug.
    if not job.cancelled():
        job.exception()
