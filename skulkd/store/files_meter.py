"""How far the files of one model are on their way here: sampled, shown, published now and then.

Must not know where the files come from.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from skulkd.store.progress import FilesProgress
from skulkd.store.progress_events import Entry, Throttle, progress_data
from skulkd.store.stage import StageJob
from skulkd.store.transfer_rate import TransferMeter, seconds_left
from skulkd.wire.downloads import DownloadProgress, DownloadProgressData

MAX_LISTED_FILES = 64


@dataclass(slots=True)
class FilesMeter:
    """`total_bytes` is what is known before the source tells; `update` or `update_stage` it."""

    entry: Entry
    publish: Callable[[DownloadProgress], None]
    clock: Callable[[], float]
    total_bytes: int
    done_bytes: int = 0
    detail: str | None = None
    _whole: TransferMeter = field(init=False)
    _files: dict[str, TransferMeter] = field(default_factory=dict)
    _throttle: Throttle = field(default_factory=Throttle)
    _hashed: tuple[int, int] | None = None
    _alive_at: float = 0.0
    """When the store last got on with something other than bytes."""

    def __post_init__(self) -> None:
        self._alive_at = self.clock()
        self._whole = TransferMeter(self._alive_at)

    def update(self, done_bytes: int, total_bytes: int, detail: str | None = None) -> None:
        """Only bytes are known."""
        now = self._sample(done_bytes, total_bytes, 0, detail)
        if self._due(now):
            self.publish(self.entry.ongoing(self._data(now, 0)))

    def update_stage(self, job: StageJob) -> None:
        """A copy from the store, with its largest unfinished files."""
        detail = job.trouble or _hashing_text(job)
        now = self._sample(job.done_bytes, job.total_bytes, job.present_bytes, detail)
        if job.hashed is not None and job.hashed != self._hashed:
            self._hashed, self._alive_at = job.hashed, now
        for path, done in tuple(job.file_bytes.items()):
            self._files.setdefault(path, TransferMeter(now, done)).add(now, done)
        if self._due(now):
            self.publish(self.entry.ongoing(self._stage_data(job, now)))

    def shown(self) -> FilesProgress:
        now = self.clock()
        rate = self._whole.rate(now)
        return FilesProgress(
            done_bytes=self.done_bytes,
            total_bytes=self.total_bytes or None,
            bytes_per_second=rate,
            seconds_left=seconds_left(self.done_bytes, self.total_bytes, rate),
            still_s=min(self._whole.still_s(now), now - self._alive_at),
            detail=self.detail,
        )

    def _sample(self, done: int, total: int, present: int, detail: str | None) -> float:
        now = self.clock()
        self.done_bytes, self.detail = done, detail
        # Until the source tells, what the model's card says is the best that is known.
        if total not in (0, self.total_bytes):
            self.total_bytes = total
            self._throttle = Throttle()
        self._whole.add(now, done - present)
        return now

    def _due(self, now: float) -> bool:
        fraction = self.done_bytes / self.total_bytes if self.total_bytes else 0.0
        return self._throttle.passes(now, fraction)

    def _data(self, now: float, present: int) -> DownloadProgressData:
        rate = self._whole.rate(now)
        return progress_data(self.total_bytes, self.done_bytes, rate, begun_with=present)

    def _stage_data(self, job: StageJob, now: float) -> DownloadProgressData:
        unfinished = [
            (path, size) for path, size in job.sizes.items() if job.file_bytes.get(path, 0) < size
        ]
        unfinished.sort(key=lambda item: -item[1])
        files = {
            path: progress_data(size, job.file_bytes[path], self._files[path].rate(now))
            for path, size in unfinished[:MAX_LISTED_FILES]
            if job.file_bytes.get(path, 0) and path in self._files
        }
        update = {
            "completed_files": job.done_files,
            "total_files": job.total_files,
            "files": files,
        }
        return self._data(now, job.present_bytes).model_copy(update=update)


def _hashing_text(job: StageJob) -> str | None:
    if job.hashed is None:
        return None
    done, total = job.hashed
    percent = f" ({100 * done // total} %)" if total else ""
    return f"the store is computing checksums{percent}"
