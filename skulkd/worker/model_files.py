"""How a worker gets the files of a model: from this disk, or staged onto it first.

`ModelFiles` is the seam for whoever brings files from elsewhere; that may take minutes.
"""

import asyncio
from pathlib import Path
from typing import Protocol

from skulkd.store.progress import FilesProgress
from skulkd.wire.ids import ModelId
from skulkd.wire.runners import STAGING_FAILED
from skulkd.wire.shards import ShardMetadata


class FilesUnavailable(Exception):
    """The files are not here and will not come. `str()` says why."""

    def __init__(self, why: str, *, later: bool = False, code: str = STAGING_FAILED) -> None:
        super().__init__(why)
        self.later = later
        """Whether it may be different in a moment."""
        self.code = code
        """`STAGING_FAILED` when another node may get the files, `STORE_FAILED` when none can."""


class ModelFiles(Protocol):
    """Brings files. Tells its progress itself, as `NodeDownloadProgress`, failures included."""

    async def ensure_files(self, shard: ShardMetadata) -> Path:
        """The directory with everything this shard needs. Cancelled when nobody needs it.

        Raises FilesUnavailable.
        """
        ...

    def progress(self, shard: ShardMetadata) -> FilesProgress | None:
        """How far the files of this shard are; None while none are on their way."""
        ...


class Library(Protocol):
    """The models on this machine's disk. Both may block."""

    def find(self, model_id: ModelId) -> Path | None: ...

    def problem(self, model_id: ModelId) -> str | None: ...


class LibraryFiles:
    """Only what is on the disk already."""

    def __init__(self, library: Library, limit_s: float) -> None:
        self._library = library
        self._limit_s = limit_s

    async def ensure_files(self, shard: ShardMetadata) -> Path:
        """Raises FilesUnavailable."""
        try:
            async with asyncio.timeout(self._limit_s):
                return await asyncio.to_thread(self._look, shard.model_card.model_id)
        except TimeoutError as error:
            why = f"the models directory did not answer within {self._limit_s:g} s"
            raise FilesUnavailable(why, later=True) from error

    def progress(self, shard: ShardMetadata) -> FilesProgress | None:
        """Nothing is ever on its way."""
        del shard
        return None

    def _look(self, model_id: ModelId) -> Path:
        path = self._library.find(model_id)
        if path is None:
            problem = self._library.problem(model_id)
            raise FilesUnavailable(problem or f"{model_id} has no files on this node")
        return path
