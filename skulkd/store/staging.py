"""Bringing model files to this node when somebody needs them, and telling how far that is.

One job for each model, however many ask for it; it ends when nobody waits for it any more. A
model that is here already is only touched, so that eviction knows of its use.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skulkd.store.errors import (
    DownloadError,
    StoreError,
    StoreFetchError,
    StoreUnreachableError,
    UnknownModelError,
)
from skulkd.store.files_meter import FilesMeter
from skulkd.store.library import ModelLibrary
from skulkd.store.progress import FilesProgress
from skulkd.store.progress_events import Entry, bare_card, whole_model
from skulkd.store.setup import StoreSetup
from skulkd.store.stage import StageJob, stage_from_store
from skulkd.store.store_calls import StoreCalls
from skulkd.store.transfer import USUAL_PATIENCE, Patience, Stopped
from skulkd.store.uses import companions_of, name_of
from skulkd.wire.cards import ModelCard
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.shards import ShardMetadata

log = logging.getLogger(__name__)

PROGRESS_TICK_S = 0.25
HOST_POLL_S = 1.0
HOST_ATTEMPTS = 4

Publish = Callable[[DownloadProgress], None]
HubDownload = Callable[[ModelCard, Callable[[int, int], None]], Coroutine[Any, Any, Path]]
"""Brings a model from the hub into the models directory; hears of bytes done and in all."""


@dataclass(slots=True)
class _Job:
    """Work on the files of one model."""

    card: ModelCard
    task: asyncio.Task[Path]
    waiting: int = 0
    meter: FilesMeter | None = None
    """Set while bytes are on their way."""


@dataclass(slots=True)
class Staging:
    """`ensure` brings files; `moving` are the models on their way, `removing` those leaving."""

    node_id: NodeId
    setup: StoreSetup
    library: ModelLibrary
    calls: StoreCalls | None
    publish: Publish
    freeable: Callable[[], int] = lambda: 0
    hub: HubDownload | None = None
    patience: Patience = USUAL_PATIENCE
    clock: Callable[[], float] = time.monotonic
    removing: set[str] = field(default_factory=set)
    removed: asyncio.Event = field(default_factory=asyncio.Event)
    _jobs: dict[ModelId, _Job] = field(default_factory=dict)

    @property
    def moving(self) -> list[ModelCard]:
        return [job.card for job in tuple(self._jobs.values())]

    async def ensure(self, shard: ShardMetadata, *, from_hub: bool = False) -> Path:
        """The directory of the whole model, with its companions here too. Raises StoreError.

        Without a store a hub is asked only with `from_hub`, because an operator wants it: no
        placement should begin a download that nobody expects. Cancelling it stops the work when
        nobody else waits for the same model.
        """
        card = shard.model_card
        path = await self._bring(card, shard, from_hub=from_hub)
        for companion in companions_of(card):
            try:
                await self._bring(bare_card(companion.model_id), None, from_hub=from_hub)
            except StoreError as error:
                if companion.required:
                    what = f"{companion.kind} {companion.model_id} of {card.model_id}"
                    raise DownloadError(f"{what}: {error.message}", hint=error.hint) from error
                log.warning(
                    "%s runs without its %s: %s", card.model_id, companion.kind, error.message
                )
        return path

    async def cancel(self, model_id: ModelId) -> bool:
        """Stop bringing a model, whoever waits for it. Whether there was anything to stop."""
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
        """How far a model and its companions are; None while nothing is on its way."""
        ids = [card.model_id, *(companion.model_id for companion in companions_of(card))]
        jobs = [self._jobs[model_id] for model_id in ids if model_id in self._jobs]
        meters = [job.meter for job in jobs if job.meter is not None]
        return meters[0].shown() if meters else None

    # --- one model ---

    async def _bring(self, card: ModelCard, shard: ShardMetadata | None, *, from_hub: bool) -> Path:
        job = self._jobs.get(card.model_id)
        if job is None:
            job = _Job(card, asyncio.create_task(self._run(card, shard, from_hub=from_hub)))
            self._jobs[card.model_id] = job
            job.task.add_done_callback(lambda _: self._forget(card.model_id, job))
        job.waiting += 1
        try:
            return await asyncio.shield(job.task)
        except asyncio.CancelledError:
            if not job.task.done() and job.waiting == 1:
                job.task.cancel()
                await asyncio.wait({job.task})
            raise
        finally:
            job.waiting -= 1

    def _forget(self, model_id: ModelId, job: _Job) -> None:
        if self._jobs.get(model_id) is job:
            del self._jobs[model_id]
        if not job.task.cancelled():
            job.task.exception()  # whoever waited has heard it

    async def _run(self, card: ModelCard, shard: ShardMetadata | None, *, from_hub: bool) -> Path:
        # A copy that is being deleted is not here any more, even while its files still are.
        while name_of(card.model_id) in self.removing:
            await self.removed.wait()
        entry = Entry(self.node_id, shard or whole_model(card), str(self._target(card)))
        found = await asyncio.to_thread(self._look, card, loadable=shard is not None)
        if found is not None:
            return found
        meter = FilesMeter(entry, self.publish, self.clock, card.storage_size.in_bytes)
        if (job := self._jobs.get(card.model_id)) is not None:
            job.meter = meter
        try:
            path = await self._fetch(card, meter, from_hub=from_hub)
        except Stopped as error:
            raise asyncio.CancelledError from error
        except StoreError as error:
            self.publish(entry.failed(error.message))
            raise
        except asyncio.CancelledError:
            self.publish(entry.pending(card.storage_size.in_bytes))
            raise
        return path

    def _target(self, card: ModelCard) -> Path:
        area = self.setup.area
        root = self.setup.models if area is None else area.root
        return root / name_of(card.model_id)

    def _look(self, card: ModelCard, *, loadable: bool) -> Path | None:
        """The files that are here; a companion needs not be loadable on its own."""
        area, model_id = self.setup.area, card.model_id
        path = self.library.find(model_id)
        if path is None and not loadable:
            path = self._companion_here(model_id)
        if path is not None and area is not None and path.parent == area.root:
            area.touch(model_id)
        return path

    def _companion_here(self, model_id: ModelId) -> Path | None:
        area, root = self.setup.area, self.setup.store_root
        if area is not None and area.is_complete(model_id):
            return area.path_of(model_id)
        places = [self.setup.models] if root is None else [root, self.setup.models]
        name = name_of(model_id)
        return next((place / name for place in places if (place / name).is_dir()), None)

    # --- from elsewhere ---

    async def _fetch(self, card: ModelCard, meter: FilesMeter, *, from_hub: bool) -> Path:
        if self.calls is not None and self.setup.area is not None and not self.setup.is_host:
            return await self._from_store(card, meter)
        if self.calls is not None and self.setup.is_host:
            return await self._into_own_store(card, meter)
        if self.hub is None or not from_hub:
            problem = await asyncio.to_thread(self.library.problem, card.model_id)
            raise UnknownModelError(
                problem or f"{card.model_id} has no files on this node",
                hint=f"skulkctl model import PATH --id {card.model_id}",
            )
        return await self._from_hub(self.hub, card, meter)

    async def _from_store(self, card: ModelCard, meter: FilesMeter) -> Path:
        trouble: str | None = None
        for attempt in range(1, HOST_ATTEMPTS + 1):
            try:
                return await self._stage(card, meter, StageJob(trouble=trouble))
            except UnknownModelError:
                await self._ask_host(card, meter)
            except StoreUnreachableError as error:
                if attempt == HOST_ATTEMPTS:
                    raise
                trouble = error.message
                meter.update(meter.done_bytes, meter.total_bytes, trouble)
                await asyncio.sleep(self.patience.pause_s(attempt + 1))
        raise DownloadError(f"the store lost {card.model_id} while it was staged")

    async def _stage(self, card: ModelCard, meter: FilesMeter, job: StageJob) -> Path:
        calls, area = self.calls, self.setup.area
        assert calls is not None  # noqa: S101 - asked for only with a store
        assert area is not None  # noqa: S101
        address = await calls.address()

        def work() -> Path:
            return stage_from_store(
                area,
                address,
                card.model_id,
                job,
                freeable=self.freeable,
                patience=self.patience,
            )

        path = await _in_thread(calls.in_thread(work), job.stop, lambda: meter.update_stage(job))
        await asyncio.to_thread(area.touch, card.model_id)
        self.publish(meter.entry.completed(job.total_bytes))
        log.info("%s is staged: %d bytes in %s", card.model_id, job.total_bytes, path)
        return path

    async def _ask_host(self, card: ModelCard, meter: FilesMeter) -> None:
        """Have the store host fetch a model from the hub, and wait for it."""
        calls, store = self.calls, self.setup.store
        if calls is None or store is None or not store.download.allow_hf_fallback:
            raise StoreFetchError(
                f"{card.model_id} is not in the store, and its host may not fetch it"
                " (model_store.download.allow_hf_fallback)",
                hint=f"on the store host:  skulkctl model import PATH --id {card.model_id}",
            )
        state = await calls.request_download(card.model_id)
        while state.status in ("pending", "downloading"):
            total = card.storage_size.in_bytes
            done = int(total * (state.progress or 0.0))
            meter.update(done, total, "the store downloads it from the hub")
            await asyncio.sleep(HOST_POLL_S)
            state = await calls.download_status(card.model_id)
        if state.status != "complete":
            # The host's message begins with the id, too.
            why = (state.error or state.status).removeprefix(f"{card.model_id}: ")
            raise StoreFetchError(
                f"the store host cannot fetch {card.model_id}: {why}",
                hint=f"try again:  skulkctl model pull {card.model_id}",
            )

    async def _into_own_store(self, card: ModelCard, meter: FilesMeter) -> Path:
        """On the host: the store is loaded from directly, nothing is copied."""
        await self._ask_host(card, meter)
        found = await asyncio.to_thread(self._look, card, loadable=False)
        if found is None:
            raise DownloadError(f"{card.model_id} was fetched and is not in the store")
        size_bytes = card.storage_size.in_bytes
        self.publish(meter.entry.completed(size_bytes, read_only=True))
        return found

    async def _from_hub(self, hub: HubDownload, card: ModelCard, meter: FilesMeter) -> Path:
        meter.update(0, card.storage_size.in_bytes)
        path = await hub(card, meter.update)
        self.publish(meter.entry.completed(card.storage_size.in_bytes))
        return path


async def _in_thread(
    task: asyncio.Future[Path], stop: Callable[[], None], tell: Callable[[], None]
) -> Path:
    """The result of blocking work, with looks at its progress. Cancelling stops the work first."""
    try:
        while not task.done():
            tell()
            await asyncio.wait({task}, timeout=PROGRESS_TICK_S)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise
    return task.result()
