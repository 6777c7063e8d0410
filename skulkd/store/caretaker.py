"""Looks after the staged copies of this node: tells of them, evicts, purges.

One mechanism, three triggers: an instance went away, the node started, an operator asked. What is
in use is looked up at the moment of each deletion and on the event loop, so a model that somebody
began to stage or load meanwhile stays.
"""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skulkd.store.errors import FileAccessError, StoreError
from skulkd.store.eviction import Eviction, plan_eviction
from skulkd.store.setup import StoreSetup
from skulkd.store.staging import Staging
from skulkd.store.staging_area import StagedModel, StagingArea, tree_bytes
from skulkd.store.uses import Uses, models_in_use, name_of
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State
from skulkd.wire.storage import NodePurge, NodeStorage, PurgedModel, StagedCopy

log = logging.getLogger(__name__)

TICK_S = 1.0
START_GRACE_S = 10.0


@dataclass(slots=True)
class Caretaker:
    """`run` it beside the node and `notify` it of changes of the state."""

    node_id: NodeId
    setup: StoreSetup
    staging: Staging
    state: Callable[[], State]
    running: Callable[[], Iterable[ModelCard]]
    """Models of live runners, also of those whose instance is gone."""
    event_log: Path
    logs: Path
    on_removed: Callable[[str], None] = lambda name: None
    start_grace_s: float = START_GRACE_S
    now: Callable[[], float] = time.time
    last: NodeStorage | None = None
    """What was found when somebody last looked."""
    _gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def in_use(self) -> Uses:
        """What must stay, and why."""
        return models_in_use(self.state(), self.node_id, self.running(), self.staging.moving)

    def freeable_bytes(self) -> int:
        """What a purge would free now. Blocking; safe in any thread."""
        area = self.setup.area
        if area is None:
            return 0
        used = self.in_use()
        return sum(copy.size_bytes for copy in area.copies() if copy.name not in used)

    # --- triggers one and two ---

    def notify(self) -> None:
        """The state has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Evict after the start, and whenever something stops being used; until cancelled."""
        area = self.setup.area
        if area is None:
            return
        await asyncio.to_thread(area.tidy)
        # The placements of before must be known again, or their models would look unused.
        await asyncio.sleep(self.start_grace_s)
        used = frozenset(self.in_use())
        await self.evict("node start")
        while True:
            await self._next_look()
            still = frozenset(self.in_use())
            left, used = used - still, still
            if left:
                await asyncio.to_thread(self._touch, area, left)
                await self.evict("instance deactivated")

    async def _next_look(self) -> None:
        try:
            async with asyncio.timeout(TICK_S):
                await self._changed.wait()
        except TimeoutError:
            return  # runners end without a change of the state
        self._changed.clear()

    def _touch(self, area: StagingArea, names: Iterable[str]) -> None:
        at = self.now()
        for name in names:
            if (area.root / name).is_dir():
                area.touch_copy(name, at)

    async def evict(self, trigger: str) -> Eviction:
        """Delete what is beyond the budget, unless the settings leave that to the operator."""
        if self.setup.area is None or not self.setup.cleans_up:
            return Eviction()
        async with self._gate:
            try:
                copies = await asyncio.to_thread(self.setup.area.copies)
                plan = self._plan(copies)
                for copy in plan.evict:
                    freed = await self._remove(copy.name)
                    if freed is not None:
                        log.info("evicted %s (%s): %d bytes", copy.name, trigger, freed)
            except StoreError as error:
                log.warning("eviction (%s) failed: %s", trigger, error.message)
                return Eviction()
        return plan

    def _plan(self, copies: Sequence[StagedModel]) -> Eviction:
        budget = self.setup.budget_bytes if self.setup.cleans_up else None
        return plan_eviction([copy.copy for copy in copies], self.in_use().keys(), budget)

    async def _remove(self, name: str) -> int | None:
        """The bytes that came back; None when it is used after all, or cannot be deleted."""
        if self.setup.area is None or name in self.in_use() or name in self.staging.removing:
            return None
        self.staging.removing.add(name)
        try:
            freed = await asyncio.to_thread(self.setup.area.remove, name)
        except StoreError as error:
            log.warning("%s stays: %s", name, error.message)
            return None
        finally:
            self.staging.removing.discard(name)
            removed, self.staging.removed = self.staging.removed, asyncio.Event()
            removed.set()
        self.on_removed(name)
        return freed

    # --- trigger three ---

    async def purge(self, model_id: str | None, *, dry_run: bool = False) -> NodePurge:
        """Delete every copy that nobody uses, or that of one model. Raises StoreError."""
        area = self.setup.area
        if area is None:
            return NodePurge(node_id=self.node_id)
        async with self._gate:
            copies = await asyncio.to_thread(area.copies)
            before = sum(copy.size_bytes for copy in copies)
            wanted = [c for c in copies if model_id is None or c.name == name_of(model_id)]
            purged, skipped = await self._purge(wanted, dry_run=dry_run)
        after = before if dry_run else sum(c.size_bytes for c in await self._copies(area))
        _, free = await asyncio.to_thread(disk_of, area.root)
        return NodePurge(
            node_id=self.node_id,
            purged=purged,
            skipped=skipped,
            freed_bytes=sum(model.size_bytes for model in purged),
            staged_bytes_before=before,
            staged_bytes_after=after,
            disk_free_bytes=free,
        )

    async def _copies(self, area: StagingArea) -> list[StagedModel]:
        return await asyncio.to_thread(area.copies)

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

    # --- telling ---

    async def summary(self) -> NodeStorage:
        """The storage of this node. Raises StoreError."""
        self.last = await asyncio.to_thread(self._summary, self.in_use())
        return self.last

    def _summary(self, used: Uses) -> NodeStorage:
        area = self.setup.area
        copies = [] if area is None else area.copies()
        budget = self.setup.budget_bytes if self.setup.cleans_up else None
        plan = plan_eviction([copy.copy for copy in copies], used.keys(), budget)
        ids = {copy.name: copy.model_id for copy in copies}
        total, free = disk_of(self.setup.models if area is None else area.root)
        return NodeStorage(
            node_id=self.node_id,
            staging_root=None if area is None else str(area.root),
            staged_models=[_info(copy, used.get(copy.name, ())) for copy in copies],
            staged_total_bytes=sum(copy.size_bytes for copy in copies),
            event_log_bytes=tree_bytes(self.event_log),
            disk_total_bytes=total,
            disk_free_bytes=free,
            keep_recent_bytes=budget,
            next_eviction=[ids[copy.name] for copy in plan.evict],
            next_eviction_bytes=plan.evicted_bytes,
            log_bytes=tree_bytes(self.logs),
            store_path=None if self.setup.store_root is None else str(self.setup.store_root),
        )


def disk_of(path: Path) -> tuple[int, int]:
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


def _info(copy: StagedModel, reasons: Sequence[str]) -> StagedCopy:
    return StagedCopy(
        model_id=copy.model_id,
        directory=str(copy.path),
        size_bytes=copy.size_bytes,
        last_used_epoch_seconds=copy.last_used,
        in_use=bool(reasons),
        complete=copy.complete,
        in_use_by=list(reasons),
    )
