"""What a runner waits for before its process is started: files, memory, or the other ranks."""

from collections.abc import Callable

from skulkd.store.progress import FilesProgress
from skulkd.wire.timeline import RunnerWaiting, WaitReason

ReadProgress = Callable[[], FilesProgress | None]


class WaitingView:
    """`begin` a wait, `end` it; read by diagnostics. Waits follow each other, never overlap."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reason: WaitReason | None = None
        self._since = 0.0
        self._detail: str | None = None
        self._progress: ReadProgress | None = None

    def begin(
        self,
        reason: WaitReason,
        *,
        detail: str | None = None,
        progress: ReadProgress | None = None,
    ) -> None:
        """The same reason again keeps its beginning."""
        if reason != self._reason:
            self._reason, self._since = reason, self._clock()
        self._detail, self._progress = detail, progress

    def end(self) -> None:
        self._reason = self._detail = self._progress = None

    def shown(self) -> RunnerWaiting | None:
        """As the timeline tells it; None when it waits for nothing."""
        if self._reason is None:
            return None
        files = None if self._progress is None else self._progress()
        waiting = RunnerWaiting(
            reason=self._reason, seconds=self._clock() - self._since, detail=self._detail
        )
        if files is None:
            return waiting
        return waiting.model_copy(
            update={
                "detail": files.detail,
                "done_bytes": files.done_bytes,
                "total_bytes": files.total_bytes,
                "bytes_per_second": files.bytes_per_second,
                "seconds_left": files.seconds_left,
                "still_seconds": files.still_s,
            }
        )
