"""Model files for the worker, brought by the store room when they are not here."""

from pathlib import Path

from skulkd.store.errors import (
    BusyError,
    DownloadError,
    FileAccessError,
    StoreError,
    StoreFetchError,
    StoreUnreachableError,
)
from skulkd.store.progress import FilesProgress
from skulkd.store.staging import Staging
from skulkd.wire.runners import STORE_FAILED
from skulkd.wire.shards import ShardMetadata
from skulkd.worker.model_files import FilesUnavailable

_MAY_PASS = (BusyError, DownloadError, FileAccessError, StoreUnreachableError)


class StagedFiles:
    """`ModelFiles` over the staging of a node."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging

    async def ensure_files(self, shard: ShardMetadata) -> Path:
        """Raises FilesUnavailable."""
        try:
            return await self._staging.ensure(shard)
        except StoreFetchError as error:
            # Tried again it would only repeat the store's answer; an operator restarts it.
            raise FilesUnavailable(error.message, code=STORE_FAILED) from error
        except StoreError as error:
            raise FilesUnavailable(error.message, later=isinstance(error, _MAY_PASS)) from error

    def progress(self, shard: ShardMetadata) -> FilesProgress | None:
        return self._staging.progress(shard.model_card)
