"""How a worker gets the files of a model: from the library on this disk, or staged onto it."""

import asyncio
from pathlib import Path
from typing import Protocol

from skulkd.store.errors import (
    BusyError,
    DownloadError,
    FileAccessError,
    StoreError,
    StoreFetchError,
    StoreUnreachableError,
)
from skulkd.store.staging.manager import StagingManager
from skulkd.store.staging.progress import FilesProgress
from skulkd.wire.ids import ModelId
from skulkd.wire.runners import STAGING_FAILED, STORE_FAILED
from skulkd.wire.shards import ShardMetadata

_RETRYABLE = (BusyError, DownloadError, FileAccessError, StoreUnreachableError)


class FilesUnavailable(Exception):
    """The files are not here and cannot be fetched. `str()` says why."""

    def __init__(self, why: str, *, retryable: bool = False, code: str = STAGING_FAILED) -> None:
        super().__init__(why)
        self.retryable = retryable
        """Whether another try may succeed without an operator."""
        self.code = code
        """`STAGING_FAILED` when another node may get the files, `STORE_FAILED` when none can."""


class ModelFiles(Protocol):
    """Provides files; publishes its progress itself, as `NodeDownloadProgress`."""

    async def ensure_files(self, shard: ShardMetadata) -> Path:
        """The directory with everything this shard needs; may take minutes or hours.

        Raises FilesUnavailable.
        """
        ...

    def progress(self, shard: ShardMetadata) -> FilesProgress | None:
        """How much of this shard's files is here; None while nothing is being copied."""
        ...


class LibraryLookup(Protocol):
    """The models on this machine's disk. Both methods may block."""

    def find(self, model_id: ModelId) -> Path | None: ...

    def problem(self, model_id: ModelId) -> str | None: ...


class LibraryFiles:
    """`ModelFiles` of the library on this disk; fetches nothing."""

    def __init__(self, library: LibraryLookup, limit_s: float) -> None:
        self._library = library
        self._limit_s = limit_s

    async def ensure_files(self, shard: ShardMetadata) -> Path:
        """Raises FilesUnavailable."""
        try:
            async with asyncio.timeout(self._limit_s):
                return await asyncio.to_thread(self._find, shard.model_card.model_id)
        except TimeoutError as error:
            why = f"the models directory did not answer within {self._limit_s:g} s"
            raise FilesUnavailable(why, retryable=True) from error

    def progress(self, shard: ShardMetadata) -> FilesProgress | None:
        """Nothing is ever being copied."""
        del shard
        return None

    def _find(self, model_id: ModelId) -> Path:
        path = self._library.find(model_id)
        if path is None:
            problem = self._library.problem(model_id)
            raise FilesUnavailable(problem or f"{model_id} has no files on this node")
        return path


class StagedFiles:
    """`ModelFiles` of the store: stages what is not on this disk."""

    def __init__(self, staging: StagingManager) -> None:
        self._staging = staging

    async def ensure_files(self, shard: ShardMetadata) -> Path:
        """Raises FilesUnavailable."""
        try:
            return await self._staging.ensure(shard)
        except StoreFetchError as error:
            # The store would only repeat its answer; an operator has to fix it and restart.
            raise FilesUnavailable(error.message, code=STORE_FAILED) from error
        except StoreError as error:
            retryable = isinstance(error, _RETRYABLE)
            raise FilesUnavailable(error.message, retryable=retryable) from error

    def progress(self, shard: ShardMetadata) -> FilesProgress | None:
        return self._staging.progress(shard.model_card)
