"""Fetching models into the store, as its server sees it: ask, look, forget."""

from collections.abc import Sequence
from typing import Protocol

from skulkd.wire.storage import StoreDownload


class Fetcher(Protocol):
    """Brings models from a hub, one job for each model."""

    def request(self, model_id: str, gguf_file: str | None = None) -> StoreDownload:
        """Start, unless it runs or is done; a failed one starts again. Raises StoreError."""
        ...

    def status(self, model_id: str) -> StoreDownload | None:
        """None when nobody has asked for this model."""
        ...

    def active(self) -> Sequence[StoreDownload]:
        """Those that wait or run."""
        ...

    def forget(self, model_id: str) -> None:
        """The model was deleted: the next request starts from the beginning."""
        ...
