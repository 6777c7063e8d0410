"""Evicts and purges staged copies, and reports the storage of this node.

Eviction runs after the start and when a model stops being used; a purge when an operator asks.
Uses are checked at the moment of each deletion and on the event loop, so a model that is staged
or loaded meanwhile stays.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skulkd.store.config import StoreConfig
from skulkd.store.errors import FileAccessError, StoreError
from skulkd.store.model_ids import unchecked_directory_name
from skulkd.store.retention import EvictionPlan, ModelsInUse, models_in_use, plan_eviction
from skulkd.store.staging.area import StagedModel, StagingArea, tree_bytes
from skulkd.store.staging.manager import StagingManager
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State
from skulkd.wire.storage import NodePurge, NodeStorage, PurgedModel, StagedCopy

log = logging.getLogger(__name__)

POLL_S = 1.0
START_GRACE_S = 10.0


@dataclass(slots=True)
class Evictor:
    node_id: NodeId
    config: StoreConfig
    staging: StagingManager
    state: Callable[[], State]
    running: Callable[[], Iterable[ModelCard]]
    """Models of live runners, also of those whose instance is gone."""
    event_log: Path
    logs: Path
    on_removed: Callable[[str], None] = lambda name: None
    start_grace_s: float = START_GRACE_S
    now: Callable[[], float] = time.time
    last: NodeStorage | None = None
    """The last result of `storage`."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def in_use(self) -> ModelsInUse:
        return models_in_use(self.state(), self.node_id, self.running(), self.staging.active)

    def in_use_reason(self, model_id: str) -> str | None:
        """Why a model must not be deleted or replaced now."""
        return "; ".join(self.in_use().get(unchecked_directory_name(model_id), ())) or None

    def freeable_bytes(self) -> int:
        """What a purge would free now. Blocking; safe in any thread."""
        area = self.config.area
        if area is None:
            return 0
        used = self.in_use()
        return sum(copy.size_bytes for copy in area.copies() if copy.name not in used)

    # --- eviction ---

    def notify(self) -> None:
        """The state has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Evict after the start, and whenever a model stops being used; until cancelled."""
        area = self.config.area
        if area is None:
            return
        await asyncio.to_thread(area.remove_leftovers)
        # Until the placements are known again, their models look unused.
        await asyncio.sleep(self.start_grace_s)
        used = frozenset(self.in_use())
        await self.evict("node start")
        while True:
            await self._wait_for_change()
            still = frozenset(self.in_use())
            released, used = used - still, still
            if released:
                await asyncio.to_thread(self._touch, area, released)
                await self.evict("instance deactivated")

    async def _wait_for_change(self) -> None:
        try:
            async with asyncio.timeout(POLL_S):
                await self._changed.wait()
        except TimeoutError:
            return  # runners end without a change of the state
        self._changed.clear()

    def _touch(self, area: StagingArea, names: Iterable[str]) -> None:
        at = self.now()
        for name in names:
            if (area.root / name).is_dir():
                area.touch_copy(name, at)

    async def evict(self, trigger: str) -> EvictionPlan:
        """Delete what exceeds the budget, unless the settings leave that to the operator."""
        if self.config.area is None or self.config.keep_recent_bytes is None:
            return EvictionPlan()
        async with self._lock:
            try:
                copies = await asyncio.to_thread(self.config.area.copies)
                plan = plan_eviction(copies, self.in_use().keys(), self.config.keep_recent_bytes)
                for copy in plan.evict:
                    freed = await self._remove(copy.name)
                    if freed is not None:
                        log.info("evicted %s (%s): %d bytes", copy.name, trigger, freed)
            except StoreError as error:
                log.warning("eviction (%s) failed: %s", trigger, error.message)
                return EvictionPlan()
        return plan

    async def _remove(self, name: str) -> int | None:
        """The bytes that were freed; None when it is in use after all, or cannot be deleted."""
        area, staging = self.config.area, self.staging
        if area is None or name in self.in_use() or name in staging.removing:
            return None
        staging.removing.add(name)
        try:
            freed = await asyncio.to_thread(area.remove, name)
        except StoreError as error:
            log.warning("cannot delete %s: %s", name, error.message)
            return None
        finally:
            staging.removing.discard(name)
            removed, staging.removed = staging.removed, asyncio.Event()
            removed.set()
        self.on_removed(name)
        return freed

    # --- purge ---

    async def purge(self, model_id: str | None, *, dry_run: bool = False) -> NodePurge:
        """Delete every unused copy, or that of one model. Raises StoreError."""
        area = self.config.area
        if area is None:
            return NodePurge(node_id=self.node_id)
        async with self._lock:
            copies = await asyncio.to_thread(area.copies)
            before = sum(copy.size_bytes for copy in copies)
            name = None if model_id is None else unchecked_directory_name(model_id)
            wanted = [copy for copy in copies if name in (None, copy.name)]
            purged, skipped = await self._purge(wanted, dry_run=dry_run)
        left = copies if dry_run else await asyncio.to_thread(area.copies)
        _, free = await asyncio.to_thread(disk_usage, area.root)
        return NodePurge(
            node_id=self.node_id,
            purged=purged,
            skipped=skipped,
            freed_bytes=sum(model.size_bytes for model in purged),
            staged_bytes_before=before,
            staged_bytes_after=sum(copy.size_bytes for copy in left),
            disk_free_bytes=free,
        )

    async def _purge(
        self, wanted: Sequence[StagedModel], *, dry_run: bool
    ) -> tuple[list[PurgedModel], list[PurgedModel]]:
        purged: list[PurgedModel] = []
        skipped: list[PurgedModel] = []
        for copy in wanted:
            reasons = self.in_use().get(copy.name, ())
            model = PurgedModel(
                model_id=copy.model_id, size_bytes=copy.size_bytes, reasons=list(reasons)
            )
            if reasons:
                skipped.append(model)
            elif dry_run or await self._remove(copy.name) is not None:
                purged.append(model)
            else:
                why = self.in_use().get(copy.name, ("it cannot be deleted; see the log",))
                skipped.append(model.model_copy(update={"reasons": list(why)}))
        return purged, skipped

    # --- report ---

    async def storage(self) -> NodeStorage:
        """The storage of this node. Raises StoreError."""
        self.last = await asyncio.to_thread(self._storage, self.in_use())
        return self.last

    def _storage(self, used: ModelsInUse) -> NodeStorage:
        config, area = self.config, self.config.area
        copies = [] if area is None else area.copies()
        plan = plan_eviction(copies, used.keys(), config.keep_recent_bytes)
        total, free = disk_usage(config.download_root)
        return NodeStorage(
            node_id=self.node_id,
            staging_root=None if area is None else str(area.root),
            staged_models=[_staged_copy(copy, used.get(copy.name, ())) for copy in copies],
            staged_total_bytes=sum(copy.size_bytes for copy in copies),
            event_log_bytes=tree_bytes(self.event_log),
            disk_total_bytes=total,
            disk_free_bytes=free,
            keep_recent_bytes=config.keep_recent_bytes,
            next_eviction=[copy.model_id for copy in plan.evict],
            next_eviction_bytes=plan.evicted_bytes,
            log_bytes=tree_bytes(self.logs),
            store_path=None if config.store_root is None else str(config.store_root),
        )


def disk_usage(path: Path) -> tuple[int, int]:
    """Total and free bytes of the volume on which a directory is or will be; else zeros."""
    for place in (path, *path.parents):
        try:
            usage = shutil.disk_usage(place)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise FileAccessError.of(error, place) from error
        return usage.total, usage.free
    return 0, 0


def _staged_copy(copy: StagedModel, reasons: Sequence[str]) -> StagedCopy:
    return StagedCopy(
        model_id=copy.model_id,
        directory=str(copy.path),
        size_bytes=copy.size_bytes,
        last_used_epoch_seconds=copy.last_used,
        in_use=bool(reasons),
        complete=copy.complete,
        in_use_by=list(reasons),
    )
