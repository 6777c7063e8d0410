"""The models on this machine's disk. Must not know of cards or of other machines.

Blocking: a few milliseconds for each model the first time, then one `scandir` for each directory.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skulkd.settings.paths import Paths, expand_home
from skulkd.store.atomic_directory import remove_directory
from skulkd.store.errors import FileAccessError, StoreError, UnknownModelError
from skulkd.store.model_directory import ModelDirectory, inspect_directory
from skulkd.store.model_ids import check_model_id, directory_name, model_id_of_directory
from skulkd.store.staging.area import StagingArea, is_complete_copy, tree_bytes
from skulkd.wire.ids import ModelId

_Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A complete model. `weight_bytes` counts the weights, `size_bytes` all files."""

    model_id: ModelId
    directory: ModelDirectory
    size_bytes: int
    read_only: bool

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def weight_bytes(self) -> int:
        return self.directory.weight_bytes


class ModelLibrary:
    """Models in the models directory, then in those of SKULK_MODELS_PATH, which are read-only.

    Then in the store, on its host, and in the staging area, where only complete copies count.
    """

    def __init__(
        self,
        paths: Paths,
        environ: Mapping[str, str],
        *,
        store: Path | None = None,
        staging: StagingArea | None = None,
    ) -> None:
        self._models = paths.models
        names = environ.get("SKULK_MODELS_PATH", "").split(":")
        self._read_only = [expand_home(name, environ) for name in names if name]
        self._read_only += [] if store is None else [store]
        self._staging = staging
        self._seen: dict[Path, tuple[_Stamp, ModelDirectory | str]] = {}

    @classmethod
    def over(cls, root: Path) -> "ModelLibrary":
        """The models of one directory."""
        return cls(Paths(root, root, root, root, root, moved=False), {})

    def find(self, model_id: str) -> Path | None:
        """The directory of a complete model; None when there is none."""
        model = self.get(model_id)
        return None if model is None else model.path

    def get(self, model_id: str) -> LocalModel | None:
        """The first complete model of this id; None also for an invalid id."""
        for path in self._places(model_id):
            found = self._inspect(path)
            if isinstance(found, ModelDirectory):
                size_bytes = sum(size for _, size, _ in self._seen[path][0])
                read_only = path.parent != self._models
                return LocalModel(ModelId(model_id), found, size_bytes, read_only)
        return None

    def problem(self, model_id: str) -> str | None:
        """Why the files of a model cannot be used; None when they can, or there are none."""
        for path in self._places(model_id):
            if self._is_staged(path):
                continue  # an incomplete copy is completed when it is needed
            found = self._inspect(path)
            return f"{path} cannot be used: {found}" if isinstance(found, str) else None
        return None

    def list(self) -> tuple[LocalModel, ...]:
        """All complete models by id; of two with the same id the one that `find` returns."""
        ids = {
            model_id
            for root in self._roots()
            for name in _directory_names(root)
            if (model_id := model_id_of_directory(name)) is not None
        }
        models = [self.get(model_id) for model_id in sorted(ids)]
        return tuple(model for model in models if model is not None)

    def remove(self, model_id: str) -> int:
        """Delete a model, complete or not, from the models directory; return its size.

        Raises UnknownModelError when it is not there, FileAccessError when it cannot be deleted.
        """
        path = self._models / directory_name(model_id)
        try:
            if not path.is_dir():
                raise UnknownModelError(f"{check_model_id(model_id)} is not in {self._models}")
            size_bytes = tree_bytes(path)
            remove_directory(path)
        except OSError as error:
            raise FileAccessError.of(error, path) from error
        self._seen.pop(path, None)
        return size_bytes

    def _roots(self) -> tuple[Path, ...]:
        staged = () if self._staging is None else (self._staging.root,)
        return tuple(dict.fromkeys((self._models, *self._read_only, *staged)))

    def _places(self, model_id: str) -> tuple[Path, ...]:
        try:
            name = directory_name(model_id)
        except StoreError:
            return ()
        return tuple(path for root in self._roots() if (path := root / name).is_dir())

    def _is_staged(self, path: Path) -> bool:
        return self._staging is not None and path.parent == self._staging.root

    def _inspect(self, path: Path) -> ModelDirectory | str:
        """The model directory, or why it cannot be used."""
        if self._is_staged(path) and not is_complete_copy(path):
            return "it is not staged completely"
        try:
            stamp = _stamp(path)
            seen = self._seen.get(path)
            if seen is None or seen[0] != stamp:
                seen = self._seen[path] = (stamp, _inspect(path))
            return seen[1]
        except OSError as error:
            return FileAccessError.of(error, path).message


def _inspect(path: Path) -> ModelDirectory | str:
    try:
        return inspect_directory(path)
    except StoreError as error:
        return error.message


def _stamp(path: Path) -> _Stamp:
    """Changes whenever a file of the model does; hidden files are our own."""
    with os.scandir(path) as entries:
        found = [
            (entry.name, entry.stat())
            for entry in entries
            if entry.is_file() and not entry.name.startswith(".")
        ]
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in found))


def _directory_names(root: Path) -> tuple[str, ...]:
    """Sub-directories of a root; none when it is missing or cannot be read."""
    try:
        with os.scandir(root) as entries:
            return tuple(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return ()
