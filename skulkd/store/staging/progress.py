"""Progress of model files: rates, and the entries of `/state.downloads`. Pure.

There is one entry for each model of a node: pending, ongoing, completed or failed. The planner
reads them to prefer nodes that have the files; `place --wait` and `storage --watch` show them.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard
from skulkd.wire.downloads import (
    DownloadCompleted,
    DownloadFailed,
    DownloadOngoing,
    DownloadPending,
    DownloadProgress,
    DownloadProgressData,
)
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.shards import PipelineShardMetadata, ShardMetadata

WINDOW_S = 10.0
MIN_SPAN_S = 1.0
MIN_STEP = 0.02
MIN_INTERVAL_S = 1.0
HEARTBEAT_S = 10.0
MAX_LISTED_FILES = 64

Sample = tuple[float, int]
"""A time, and the bytes that were done then."""


# --- rate ---


def moving_rate(samples: Sequence[Sample], now: float, window_s: float = WINDOW_S) -> float | None:
    """Bytes per second over the last `window_s`; None with too few samples.

    Not the average since the start, which would count the time before the first byte.
    """
    if not samples:
        return None
    start = now - window_s
    before = [sample for sample in samples if sample[0] <= start]
    first_at, first_bytes = before[-1] if before else samples[0]
    # A sample from before the window counts as its beginning: no bytes came between the two.
    span_s = now - max(first_at, start)
    if span_s < MIN_SPAN_S:
        return None
    return max(0, samples[-1][1] - first_bytes) / span_s


def seconds_left(done_bytes: int, total_bytes: int, rate: float | None) -> float | None:
    """None when it is unknown: no rate, no total, or no progress."""
    if not rate or total_bytes <= 0:
        return None
    return max(0, total_bytes - done_bytes) / rate


class RateMeter:
    """Samples of one transfer, as many as the window needs."""

    def __init__(self, now: float, done_bytes: int = 0) -> None:
        self._samples: deque[Sample] = deque([(now, done_bytes)])
        self._moved_at = now

    def add(self, now: float, done_bytes: int) -> None:
        last = self._samples[-1]
        if done_bytes != last[1]:
            self._moved_at = now
        if done_bytes < last[1]:
            self._samples.clear()  # bytes were discarded and are sent again
        elif done_bytes > last[1] == self._samples[0][1]:
            # First bytes after a pause: the pause must not lower the rate.
            self._samples.clear()
            self._samples.append(last)
        self._samples.append((now, done_bytes))
        while len(self._samples) > 1 and self._samples[1][0] <= now - WINDOW_S:
            self._samples.popleft()

    def rate(self, now: float) -> float | None:
        return moving_rate(self._samples, now)

    def idle_s(self, now: float) -> float:
        """Seconds since the last byte."""
        return now - self._moved_at


# --- entries of /state.downloads ---


def whole_model_shard(card: ModelCard) -> PipelineShardMetadata:
    """Downloads are about whole models; the contract wants a shard all the same."""
    return PipelineShardMetadata(
        model_card=card,
        device_rank=0,
        world_size=1,
        start_layer=0,
        end_layer=card.n_layers,
        n_layers=card.n_layers,
    )


def placeholder_card(model_id: ModelId) -> ModelCard:
    """For companions, of which only the id is known."""
    return ModelCard(
        model_id=model_id,
        storage_size=Memory.of(0),
        n_layers=1,
        hidden_size=1,
        supports_tensor=False,
        tasks=["TextGeneration"],
    )


def is_placeholder(progress: DownloadProgress) -> bool:
    """Whether the entry is of a companion, which is no model of its own."""
    card = progress.shard_metadata.model_card
    return card == placeholder_card(card.model_id)


def model_id_of(progress: DownloadProgress) -> ModelId:
    return progress.shard_metadata.model_card.model_id


@dataclass(frozen=True, slots=True)
class DownloadEntry:
    """Makes the entries of one model on one node."""

    node_id: NodeId
    shard: ShardMetadata
    directory: str = ""

    @property
    def _common(self) -> dict[str, Any]:
        return {
            "node_id": self.node_id,
            "shard_metadata": self.shard,
            "model_directory": self.directory,
        }

    def pending(self, total_bytes: int) -> DownloadPending:
        return DownloadPending(**self._common, total=Memory.of(total_bytes))

    def completed(self, total_bytes: int, *, read_only: bool = False) -> DownloadCompleted:
        total = Memory.of(total_bytes)
        return DownloadCompleted(**self._common, total=total, read_only=read_only)

    def failed(self, message: str) -> DownloadFailed:
        return DownloadFailed(**self._common, error_message=message)

    def ongoing(self, data: DownloadProgressData) -> DownloadOngoing:
        return DownloadOngoing(**self._common, download_progress=data)


# --- one transfer ---


@dataclass(frozen=True, slots=True)
class FilesProgress:
    """Model files on their way to this node."""

    done_bytes: int
    total_bytes: int | None
    bytes_per_second: float | None
    seconds_left: float | None
    idle_s: float
    """Since the last byte."""
    detail: str | None = None
    """What happens besides copying, or the last error."""


@dataclass(slots=True)
class CopyProgress:
    """How far a copy from the store is."""

    total_bytes: int = 0
    present_bytes: int = 0
    """What was on disk before this copy began."""
    done_bytes: int = 0
    done_files: int = 0
    file_bytes: dict[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    hashed: tuple[int, int] | None = None
    """While the store host computes checksums: bytes it has read, and bytes of the model."""
    retry_reason: str | None = None
    """Why the last attempt failed; None as soon as bytes arrive."""


@dataclass(slots=True)
class Throttle:
    """Limits progress events to a number that a journal can hold."""

    last_at: float | None = None
    last_fraction: float = 0.0

    def passes(self, now: float, fraction: float) -> bool:
        if self.last_at is not None:
            waited = now - self.last_at
            moved = abs(fraction - self.last_fraction) >= MIN_STEP
            if waited < MIN_INTERVAL_S or not (moved or waited >= HEARTBEAT_S):
                return False
        self.last_at, self.last_fraction = now, fraction
        return True


@dataclass(slots=True)
class TransferProgress:
    """Samples the transfer of one model and publishes it now and then."""

    entry: DownloadEntry
    publish: Callable[[DownloadProgress], None]
    clock: Callable[[], float]
    total_bytes: int
    """From the model's card, until the source reports it."""
    done_bytes: int = 0
    detail: str | None = None
    _whole: RateMeter = field(init=False)
    _files: dict[str, RateMeter] = field(default_factory=dict)
    _throttle: Throttle = field(default_factory=Throttle)
    _hashed: tuple[int, int] | None = None
    _alive_at: float = 0.0
    """When the store last made progress with anything but bytes."""

    def __post_init__(self) -> None:
        self._alive_at = self.clock()
        self._whole = RateMeter(self._alive_at)

    def update(self, done_bytes: int, total_bytes: int, detail: str | None = None) -> None:
        """A transfer of which only bytes are known."""
        now = self._sample(done_bytes, total_bytes, 0, detail)
        if self._due(now):
            self.publish(self.entry.ongoing(self._data(now, 0)))

    def update_copy(self, copy: CopyProgress) -> None:
        """A copy from the store, with its largest unfinished files."""
        detail = copy.retry_reason or _hashing_text(copy.hashed)
        now = self._sample(copy.done_bytes, copy.total_bytes, copy.present_bytes, detail)
        if copy.hashed is not None and copy.hashed != self._hashed:
            self._hashed, self._alive_at = copy.hashed, now
        for path, done in tuple(copy.file_bytes.items()):
            self._files.setdefault(path, RateMeter(now, done)).add(now, done)
        if self._due(now):
            self.publish(self.entry.ongoing(self._copy_data(copy, now)))

    def current(self) -> FilesProgress:
        now = self.clock()
        rate = self._whole.rate(now)
        return FilesProgress(
            done_bytes=self.done_bytes,
            total_bytes=self.total_bytes or None,
            bytes_per_second=rate,
            seconds_left=seconds_left(self.done_bytes, self.total_bytes, rate),
            idle_s=min(self._whole.idle_s(now), now - self._alive_at),
            detail=self.detail,
        )

    def _sample(self, done: int, total: int, present: int, detail: str | None) -> float:
        now = self.clock()
        self.done_bytes, self.detail = done, detail
        if total not in (0, self.total_bytes):
            self.total_bytes = total
            self._throttle = Throttle()
        self._whole.add(now, done - present)
        return now

    def _due(self, now: float) -> bool:
        fraction = self.done_bytes / self.total_bytes if self.total_bytes else 0.0
        return self._throttle.passes(now, fraction)

    def _data(self, now: float, present: int) -> DownloadProgressData:
        return _progress_data(self.total_bytes, self.done_bytes, self._whole.rate(now), present)

    def _copy_data(self, copy: CopyProgress, now: float) -> DownloadProgressData:
        sizes, done = copy.sizes, copy.file_bytes
        unfinished = [path for path in sizes if done.get(path, 0) < sizes[path]]
        unfinished.sort(key=lambda path: -sizes[path])
        files = {
            path: _progress_data(sizes[path], done[path], self._files[path].rate(now))
            for path in unfinished[:MAX_LISTED_FILES]
            if done.get(path, 0) and path in self._files
        }
        update = {"completed_files": copy.done_files, "total_files": len(sizes), "files": files}
        return self._data(now, copy.present_bytes).model_copy(update=update)


def _progress_data(
    total: int, done: int, rate: float | None, present: int = 0
) -> DownloadProgressData:
    """A speed or time of 0 means that it is unknown."""
    left_s = seconds_left(done, total, rate)
    return DownloadProgressData(
        total=Memory.of(total),
        downloaded=Memory.of(done),
        downloaded_this_session=Memory.of(max(0, done - present)),
        completed_files=0,
        total_files=0,
        speed=rate or 0.0,
        eta_ms=0 if left_s is None else int(left_s * 1000),
    )


def _hashing_text(hashed: tuple[int, int] | None) -> str | None:
    if hashed is None:
        return None
    done, total = hashed
    percent = f" ({100 * done // total} %)" if total else ""
    return f"the store is computing checksums{percent}"
