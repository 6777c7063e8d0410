"""The models of the store: `registry.json` in its root, written atomically. Blocking.

An entry that cannot be read is ignored and kept as it is. Model directories that were copied into
the root by hand are found and registered.
"""

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from skulkd.settings.files import write_atomic
from skulkd.store.atomic_directory import remove_directory
from skulkd.store.errors import FileAccessError, StoreError, UnknownModelError
from skulkd.store.host.checksums import list_files
from skulkd.store.library import LocalModel, ModelLibrary
from skulkd.store.model_ids import check_model_id, directory_name
from skulkd.wire.ids import ModelId
from skulkd.wire.storage import StoreRegistryEntry

REGISTRY = "registry.json"


def _now() -> datetime:
    return datetime.now(UTC)


class Registry:
    """The models of a store, by id."""

    def __init__(self, root: Path, now: Callable[[], datetime] = _now) -> None:
        self.root = root
        self._file = root / REGISTRY
        self._now = now
        self._library = ModelLibrary.over(root)
        self._lock = threading.Lock()

    def entries(self) -> list[StoreRegistryEntry]:
        """Every model whose directory exists, by id. Registers new ones."""
        with self._lock:
            raw = self._read()
            known = {entry.model_id: entry for entry in map(self._parse, raw.items()) if entry}
            new = [model for model in self._library.list() if model.model_id not in known]
            for model in new:
                known[model.model_id] = self._entry(model.model_id, None)
            if new:
                self._write_new(raw, [known[model.model_id] for model in new])
        return [known[model_id] for model_id in sorted(known)]

    def directory(self, model_id: str) -> Path | None:
        """The directory of a model; None when the store does not have it."""
        for entry in self.entries():
            if entry.model_id == model_id:
                return self.root / entry.store_path
        return None

    def local(self, model_id: str) -> LocalModel | None:
        """The model as it can be loaded; None for companions and unknown models."""
        return self._library.get(model_id)

    def add(self, model_id: str, repo_has_projector: bool | None = None) -> StoreRegistryEntry:
        """Register a directory. Raises FileAccessError, e.g. on a full disk."""
        entry = self._entry(check_model_id(model_id), repo_has_projector)
        with self._lock:
            self._write({**self._read(), model_id: entry.model_dump(mode="json")})
        return entry

    def remove(self, model_id: str) -> None:
        """Unregister a model and delete its files. Raises UnknownModelError or FileAccessError."""
        path = self.directory(model_id)
        if path is None:
            raise UnknownModelError(f"Model {model_id} not in store")
        with self._lock:
            try:
                # Files first: after a crash in between the entry has no directory and is ignored.
                remove_directory(path)
            except OSError as error:
                raise FileAccessError.of(error, path) from error
            self._write({key: value for key, value in self._read().items() if key != model_id})

    def _parse(self, item: tuple[str, Any]) -> StoreRegistryEntry | None:
        key, value = item
        try:
            entry = StoreRegistryEntry.model_validate(value)
            check_model_id(entry.model_id)
        except (ValidationError, StoreError):
            return None
        path = PurePosixPath(entry.store_path)
        # An entry must not lead out of the root.
        safe = len(path.parts) == 1 and not entry.store_path.startswith((".", "/"))
        exists = safe and (self.root / entry.store_path).is_dir()
        return entry if exists and key == entry.model_id else None

    def _entry(self, model_id: str, repo_has_projector: bool | None) -> StoreRegistryEntry:
        directory = self.root / directory_name(model_id)
        files = list_files(directory)
        return StoreRegistryEntry(
            model_id=ModelId(model_id),
            store_path=directory.name,
            files=files,
            downloaded_at=self._now().isoformat(),
            total_bytes=sum((directory / path).stat().st_size for path in files),
            repo_has_projector=repo_has_projector,
        )

    def _read(self) -> dict[str, Any]:
        """The file as it is, with entries that cannot be read."""
        try:
            content = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise FileAccessError.of(error, self._file) from error
        except (ValueError, RecursionError):
            return {}  # complete models are found in the directory anyway
        return content if isinstance(content, dict) else {}

    def _write_new(self, raw: dict[str, Any], new: list[StoreRegistryEntry]) -> None:
        try:
            self._write(raw | {entry.model_id: entry.model_dump(mode="json") for entry in new})
        except FileAccessError:
            return  # a full or read-only disk: they are found again next time

    def _write(self, content: dict[str, Any]) -> None:
        try:
            text = json.dumps(dict(sorted(content.items())), indent=2) + "\n"
            write_atomic(self._file, text.encode())
        except OSError as error:
            raise FileAccessError.of(error, self._file) from error
