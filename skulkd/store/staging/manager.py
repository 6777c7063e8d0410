"""Makes model files available on this node when an instance or an operator needs them.

There is one job for each model, however many callers wait for it; it ends when none is left. A
model that is present is only marked as used, for eviction.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from skulkd.store.client.connection import DEFAULT_RETRY, RetryPolicy
from skulkd.store.client.store_client import StoreClient
from skulkd.store.config import StoreConfig
from skulkd.store.errors import (
    DownloadError,
    StoreError,
    StoreFetchError,
    StoreUnreachableError,
    UnknownModelError,
)
from skulkd.store.hub.downloads import HubDownloads
from skulkd.store.library import ModelLibrary
from skulkd.store.model_ids import unchecked_directory_name
from skulkd.store.retention import companions_of
from skulkd.store.staging.copy_job import CopyJob, copy_from_store
from skulkd.store.staging.progress import (
    DownloadEntry,
    FilesProgress,
    TransferProgress,
    placeholder_card,
    whole_model_shard,
)
from skulkd.store.staging.transfer import TransferStopped
from skulkd.wire.cards import ModelCard
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.shards import ShardMetadata

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 0.25
IDLE_S = 3.0
"""After this long without a byte the store is asked whether it is alive."""
HOST_POLL_S = 1.0
HOST_ATTEMPTS = 4


@dataclass(slots=True)
class _Job:
    """The download of one model."""

    card: ModelCard
    task: asyncio.Task[Path]
    waiters: int = 0
    progress: TransferProgress | None = None
    """Set while files are transferred."""
    stalled: str | None = None
    """Why the store does not respond."""


@dataclass(slots=True)
class StagingManager:
    """`ensure` makes a model available; `removing` are copies that are being evicted."""

    node_id: NodeId
    config: StoreConfig
    library: ModelLibrary
    client: StoreClient | None
    publish: Callable[[DownloadProgress], None]
    hub: HubDownloads
    freeable: Callable[[], int] = lambda: 0
    retry: RetryPolicy = DEFAULT_RETRY
    clock: Callable[[], float] = time.monotonic
    on_stall: Callable[[], None] = lambda: None
    """Called whenever `stalled` has changed."""
    removing: set[str] = field(default_factory=set)
    removed: asyncio.Event = field(default_factory=asyncio.Event)
    _jobs: dict[ModelId, _Job] = field(default_factory=dict)

    @property
    def active(self) -> list[ModelCard]:
        """Models that are being transferred."""
        return [job.card for job in tuple(self._jobs.values())]

    async def ensure(self, shard: ShardMetadata, *, from_hub: bool = False) -> Path:
        """The directory of the complete model, its companions present, too. Raises StoreError.

        Without a store, the hub is used only with `from_hub`: a placement must not start a
        download that nobody asked for. Cancelling ends the job unless another caller waits.
        """
        card = shard.model_card
        path = await self._ensure_one(card, shard, from_hub=from_hub)
        for companion in companions_of(card):
            try:
                await self._ensure_one(
                    placeholder_card(companion.model_id), None, from_hub=from_hub
                )
            except StoreError as error:
                if companion.required:
                    what = f"{companion.kind} {companion.model_id} of {card.model_id}"
                    raise DownloadError(f"{what}: {error.message}", hint=error.hint) from error
                log.warning(
                    "%s runs without its %s: %s", card.model_id, companion.kind, error.message
                )
        return path

    async def cancel(self, model_id: ModelId) -> bool:
        """Stop the job of a model, whoever waits for it; False when there is none."""
        job = self._jobs.get(model_id)
        if job is None:
            return False
        job.task.cancel()
        await asyncio.wait({job.task})
        return True

    async def stop(self) -> None:
        for model_id in list(self._jobs):
            await self.cancel(model_id)

    def progress(self, card: ModelCard) -> FilesProgress | None:
        """Progress of a model or its companions; None while nothing is transferred."""
        ids = [card.model_id, *(companion.model_id for companion in companions_of(card))]
        jobs = [self._jobs[model_id] for model_id in ids if model_id in self._jobs]
        running = [job.progress for job in jobs if job.progress is not None]
        return running[0].current() if running else None

    def stalled(self) -> dict[ModelId, str]:
        """Models whose transfer waits for a store that does not respond, and the reason."""
        jobs = self._jobs.items()
        return {model_id: job.stalled for model_id, job in jobs if job.stalled is not None}

    # --- jobs ---

    async def _ensure_one(
        self, card: ModelCard, shard: ShardMetadata | None, *, from_hub: bool
    ) -> Path:
        job = self._jobs.get(card.model_id)
        if job is None:
            job = _Job(card, asyncio.create_task(self._run(card, shard, from_hub=from_hub)))
            self._jobs[card.model_id] = job
            job.task.add_done_callback(lambda _: self._remove_job(card.model_id, job))
        job.waiters += 1
        try:
            return await asyncio.shield(job.task)
        except asyncio.CancelledError:
            if not job.task.done() and job.waiters == 1:
                job.task.cancel()
                await asyncio.wait({job.task})
            raise
        finally:
            job.waiters -= 1

    def _remove_job(self, model_id: ModelId, job: _Job) -> None:
        if self._jobs.get(model_id) is job:
            del self._jobs[model_id]
        if not job.task.cancelled():
            job.task.exception()  # the waiters got it; asyncio must not report it again

    async def _run(self, card: ModelCard, shard: ShardMetadata | None, *, from_hub: bool) -> Path:
        while unchecked_directory_name(card.model_id) in self.removing:
            await self.removed.wait()
        found = await asyncio.to_thread(self._find_local, card, loadable=shard is not None)
        if found is not None:
            return found
        target = str(self._target(card))
        entry = DownloadEntry(self.node_id, shard or whole_model_shard(card), target)
        total_bytes = card.storage_size.in_bytes
        job = self._jobs[card.model_id]
        job.progress = TransferProgress(entry, self.publish, self.clock, total_bytes)
        watch = asyncio.create_task(self._watch_store(job, job.progress))
        try:
            return await self._fetch(card, job.progress, from_hub=from_hub)
        except TransferStopped as error:
            raise asyncio.CancelledError from error
        except StoreError as error:
            self.publish(entry.failed(error.message))
            raise
        except asyncio.CancelledError:
            self.publish(entry.pending(total_bytes))
            raise
        finally:
            watch.cancel()
            self._set_stalled(job, None)

    async def _watch_store(self, job: _Job, progress: TransferProgress) -> None:
        """Probe the store whenever no bytes arrive.

        A copy is also idle while present files are verified, so only the probe decides.
        """
        client, store = self.client, self.config.store
        while client is not None and store is not None:
            problem = await client.probe() if progress.current().idle_s >= IDLE_S else None
            if progress.current().idle_s < IDLE_S:
                problem = None  # bytes arrived meanwhile
            host = store.store_host
            self._set_stalled(job, problem and f"store host {host} does not respond: {problem}")
            await asyncio.sleep(PROGRESS_INTERVAL_S)

    def _set_stalled(self, job: _Job, stalled: str | None) -> None:
        if stalled != job.stalled:
            job.stalled = stalled
            self.on_stall()

    # --- local files ---

    def _target(self, card: ModelCard) -> Path:
        return self.config.download_root / unchecked_directory_name(card.model_id)

    def _find_local(self, card: ModelCard, *, loadable: bool) -> Path | None:
        """The files of a model; a companion need not be loadable on its own."""
        area, model_id = self.config.area, card.model_id
        path = self.library.find(model_id)
        if path is None and not loadable:
            path = self._find_companion(model_id)
        if path is not None and area is not None and path.parent == area.root:
            area.touch(model_id)
        return path

    def _find_companion(self, model_id: ModelId) -> Path | None:
        area, root = self.config.area, self.config.store_root
        if area is not None and area.is_complete(model_id):
            return area.path_of(model_id)
        roots = [self.config.models] if root is None else [root, self.config.models]
        name = unchecked_directory_name(model_id)
        return next((root / name for root in roots if (root / name).is_dir()), None)

    # --- sources ---

    async def _fetch(self, card: ModelCard, progress: TransferProgress, *, from_hub: bool) -> Path:
        client, area = self.client, self.config.area
        if client is not None and self.config.is_host:
            return await self._into_own_store(client, card, progress)
        if client is not None and area is not None:
            return await self._from_store(client, card, progress)
        if from_hub:
            return await self._from_hub(card, progress)
        problem = await asyncio.to_thread(self.library.problem, card.model_id)
        raise UnknownModelError(
            problem or f"{card.model_id} has no files on this node",
            hint=f"skulkctl model import PATH --id {card.model_id}",
        )

    async def _from_store(
        self, client: StoreClient, card: ModelCard, progress: TransferProgress
    ) -> Path:
        retry_reason: str | None = None
        for attempt in range(1, HOST_ATTEMPTS + 1):
            try:
                return await self._copy(client, card, progress, CopyJob(retry_reason=retry_reason))
            except UnknownModelError:
                await self._download_to_host(client, card, progress)
            except StoreUnreachableError as error:
                if attempt == HOST_ATTEMPTS:
                    raise
                retry_reason = error.message
                progress.update(progress.done_bytes, progress.total_bytes, retry_reason)
                await asyncio.sleep(self.retry.pause_s(attempt + 1))
        raise DownloadError(f"the store lost {card.model_id} while it was staged")

    async def _copy(
        self, client: StoreClient, card: ModelCard, progress: TransferProgress, job: CopyJob
    ) -> Path:
        area = self.config.area
        assert area is not None  # noqa: S101 - checked by `_fetch`
        address = await client.address()

        def work() -> Path:
            return copy_from_store(
                area, address, card.model_id, job, freeable=self.freeable, retry=self.retry
            )

        path = await _poll(client.in_thread(work), job, lambda: progress.update_copy(job))
        await asyncio.to_thread(area.touch, card.model_id)
        self.publish(progress.entry.completed(job.total_bytes))
        log.info("staged %s: %d bytes in %s", card.model_id, job.total_bytes, path)
        return path

    async def _download_to_host(
        self, client: StoreClient, card: ModelCard, progress: TransferProgress
    ) -> None:
        """Have the store host download a model from the hub, and wait for it."""
        store = self.config.store
        if store is None or not store.download.allow_hf_fallback:
            raise StoreFetchError(
                f"{card.model_id} is not in the store, and its host may not download it"
                " (model_store.download.allow_hf_fallback)",
                hint=f"on the store host:  skulkctl model import PATH --id {card.model_id}",
            )
        state = await client.request_download(card.model_id)
        while state.status in ("pending", "downloading"):
            total = card.storage_size.in_bytes
            done = int(total * (state.progress or 0.0))
            progress.update(done, total, "the store host downloads it from the hub")
            await asyncio.sleep(HOST_POLL_S)
            state = await client.download_status(card.model_id)
        if state.status != "complete":
            # The host's message begins with the id, too.
            why = (state.error or state.status).removeprefix(f"{card.model_id}: ")
            raise StoreFetchError(
                f"the store host cannot download {card.model_id}: {why}",
                hint=f"try again:  skulkctl model pull {card.model_id}",
            )

    async def _into_own_store(
        self, client: StoreClient, card: ModelCard, progress: TransferProgress
    ) -> Path:
        """On the store host models are loaded from the store itself; nothing is copied."""
        await self._download_to_host(client, card, progress)
        found = await asyncio.to_thread(self._find_local, card, loadable=False)
        if found is None:
            raise DownloadError(f"{card.model_id} was downloaded and is not in the store")
        size_bytes = card.storage_size.in_bytes
        self.publish(progress.entry.completed(size_bytes, read_only=True))
        return found

    async def _from_hub(self, card: ModelCard, progress: TransferProgress) -> Path:
        progress.update(0, card.storage_size.in_bytes)
        path = await self.hub.fetch(card, progress.update)
        self.publish(progress.entry.completed(card.storage_size.in_bytes))
        return path


async def _poll(task: asyncio.Future[Path], job: CopyJob, on_tick: Callable[[], None]) -> Path:
    """Wait for a copy in a thread and report its progress. Cancelling stops the copy first."""
    try:
        while not task.done():
            on_tick()
            await asyncio.wait({task}, timeout=PROGRESS_INTERVAL_S)
    except asyncio.CancelledError:
        job.stop()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise
    return task.result()
