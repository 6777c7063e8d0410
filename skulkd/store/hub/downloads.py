"""Downloads from the hub on behalf of this node: one child process for each model, with retries.

On the store host models go into the store and are registered, elsewhere into the models directory.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from skulkd.store.client.connection import RetryPolicy
from skulkd.store.errors import DownloadError, StoreError
from skulkd.store.host.registry import Registry
from skulkd.store.hub.child import child_events
from skulkd.store.model_ids import check_model_id, directory_name
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import ModelId
from skulkd.wire.storage import StoreDownload

log = logging.getLogger(__name__)

# What another attempt cannot change.
FINAL = frozenset(
    {
        "unknown_model",
        "bad_model_id",
        "no_space",
        "unsupported_model",
        "hub_unreachable",
        "hub_timeout",
    }
)
HUB_RETRY = RetryPolicy(attempts=3, first_pause_s=5.0, longest_pause_s=20.0)

OnProgress = Callable[[int, int], None]
"""Called with the bytes done and the total."""


@dataclass(slots=True)
class _Download:
    model_id: ModelId
    gguf_file: str | None
    task: asyncio.Task[Path] | None = None
    status: str = "pending"
    done: int = 0
    total: int = 0
    error: str | None = None
    on_progress: list[OnProgress] = field(default_factory=list)

    def to_wire(self) -> StoreDownload:
        progress = 1.0 if self.status == "complete" else min(1.0, self.done / max(1, self.total))
        return StoreDownload.model_validate(
            {
                "model_id": self.model_id,
                "status": self.status,
                "progress": progress,
                "error": self.error,
            }
        )


@dataclass(slots=True)
class HubDownloads:
    """Downloads by model id. A failed one starts again with the next request."""

    root: Path
    environ: Mapping[str, str]
    token: str | None = None
    offline: bool = False
    registry: Registry | None = None
    retry: RetryPolicy = HUB_RETRY
    on_complete: Callable[[], Awaitable[None]] | None = None
    """Awaited before a download counts as complete, because the model may be placed then."""
    _downloads: dict[ModelId, _Download] = field(default_factory=dict)

    def request(self, model_id: str, gguf_file: str | None = None) -> StoreDownload:
        """Start a download unless it is running. Raises StoreError."""
        return self._start(check_model_id(model_id), gguf_file).to_wire()

    def status(self, model_id: str) -> StoreDownload | None:
        """None when this model was never requested."""
        download = self._downloads.get(ModelId(model_id))
        return None if download is None else download.to_wire()

    def active(self) -> Sequence[StoreDownload]:
        downloads = [download.to_wire() for download in self._downloads.values()]
        return [state for state in downloads if state.status in ("pending", "downloading")]

    def forget(self, model_id: str) -> None:
        """Cancel a download; the next request starts from the beginning."""
        download = self._downloads.pop(ModelId(model_id), None)
        if download is not None and download.task is not None:
            download.task.cancel()

    async def fetch(self, card: ModelCard, on_progress: OnProgress) -> Path:
        """Download a model and wait for it. Raises StoreError. Cancelling stops the download."""
        download = self._start(card.model_id, card.gguf_file)
        download.on_progress.append(on_progress)
        if download.task is None:
            return self.root / directory_name(card.model_id)
        try:
            return await asyncio.shield(download.task)
        except asyncio.CancelledError:
            self.forget(card.model_id)
            raise
        finally:
            download.on_progress.remove(on_progress)

    async def stop(self) -> None:
        """Cancel every download; the next one of the model continues with its files."""
        tasks = [download.task for download in self._downloads.values() if download.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, model_id: ModelId, gguf_file: str | None) -> _Download:
        known = self._downloads.get(model_id)
        if known is not None and known.task is not None and not known.task.done():
            return known
        download = self._downloads[model_id] = _Download(model_id, gguf_file)
        download.task = asyncio.create_task(self._run(download))
        download.task.add_done_callback(_retrieve_error)
        return download

    async def _run(self, download: _Download) -> Path:
        try:
            path = await self._download(download)
            if self.registry is not None:
                await asyncio.to_thread(self.registry.add, download.model_id)
            if self.on_complete is not None:
                await self.on_complete()
        except asyncio.CancelledError:
            download.status, download.error = "failed", "stopped"
            raise
        except StoreError as error:
            download.status, download.error = "failed", error.message
            log.warning("cannot download %s: %s", download.model_id, error.message)
            raise
        download.status, download.error = "complete", None
        return path

    async def _download(self, download: _Download) -> Path:
        model_id = download.model_id
        if self.offline:
            raise DownloadError(f"{model_id} is not here, and this node is offline (SKULK_OFFLINE)")
        for attempt in range(1, self.retry.attempts + 1):
            download.status = "downloading"
            kind, message = await self._run_child(download)
            if kind is None:
                return self.root / directory_name(model_id)
            if kind in FINAL or attempt == self.retry.attempts:
                break
            pause_s = self.retry.pause_s(attempt)
            download.status = "pending"
            download.error = f"{message}; attempt {attempt + 1} follows in {pause_s:g} s"
            log.info("%s: %s", model_id, download.error)
            await asyncio.sleep(pause_s)
        raise DownloadError(f"{model_id}: {message}", hint=f"skulkctl model pull {model_id}")

    async def _run_child(self, download: _Download) -> tuple[str | None, str]:
        """Kind and message of the failure; no kind when the download is complete."""
        arguments = ["fetch", download.model_id, "--into", str(self.root)]
        arguments += ["--gguf-file", download.gguf_file] if download.gguf_file else []
        outcome: tuple[str | None, str] = ("crashed", "the download process ended unexpectedly")
        async with aclosing(child_events(arguments, self.environ, self.token)) as events:
            async for event in events:
                match event.get("event"):
                    case "progress":
                        download.done = int(event.get("done_bytes") or 0)
                        download.total = int(event.get("total_bytes") or 0)
                        for on_progress in tuple(download.on_progress):
                            on_progress(download.done, download.total)
                    case "done":
                        outcome = (None, "")
                    case "error":
                        outcome = (str(event.get("kind")), str(event.get("message")))
        return outcome


def _retrieve_error(task: asyncio.Task[Path]) -> None:
    # `status` has it; asyncio must not report an error that nobody awaited.
    if not task.cancelled():
        task.exception()
