"""Models that arrive file by file: unfinished ones in a hidden directory, renamed when whole.

Blocking. Names, sizes and checksums are those of the manifest the upload began with, and nothing
else is written. What an interrupted upload left is taken up by the next one of the same files.
"""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from skulkd.settings.files import write_atomic
from skulkd.store.building import put_in_place, refuse_existing, require_space
from skulkd.store.errors import (
    BadManifestError,
    BrokenModelError,
    BusyError,
    FileAccessError,
    UnknownModelError,
    UploadOffsetError,
)
from skulkd.store.manifest import PARTIAL, FileEntry, Manifest, parse_manifest
from skulkd.store.model_directory import inspect_directory
from skulkd.store.model_documents import CONFIG_FILE
from skulkd.store.model_ids import check_model_id, directory_name
from skulkd.store.shelf_files import sha256_of

UPLOADING = ".uploading-"
MANIFEST = ".upload.json"
MOST_UPLOADS = 8
STALE_S = 24 * 3600.0
# Data only: no program comes into a models directory.
SUFFIXES = frozenset(
    {".json", ".jinja", ".txt", ".model", ".tiktoken", ".safetensors", ".toml", ".md"}
)


class UploadFiles:
    """Uploads into one directory of models. Every method raises StoreError."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def begin(self, manifest: Manifest, *, replace: bool) -> dict[str, int]:
        """Bytes by path that an earlier attempt with the same files has left."""
        _check_names(manifest)
        refuse_existing(self.root, manifest.model_id, replace=replace)
        scratch = self._scratch(manifest.model_id)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if self._read(scratch) != _document(manifest):
                shutil.rmtree(scratch, ignore_errors=True)
            self._make_room_for(scratch)
            received = {entry.path: _received(scratch, entry) for entry in manifest.files}
            require_space(self.root, manifest.total_bytes - sum(received.values()))
            scratch.mkdir(exist_ok=True)
            write_atomic(scratch / MANIFEST, json.dumps(_document(manifest)).encode())
        except OSError as error:
            raise FileAccessError.of(error, self.root) from error
        return received

    def open(self, model_id: str, path: str, offset: int) -> tuple[int, FileEntry]:
        """A file descriptor to write at `offset`, and what the file must become."""
        scratch = self._scratch(model_id)
        entry = self._entry(model_id, path)
        there = _received(scratch, entry)
        if offset != there:
            raise UploadOffsetError(f"{path} goes on at byte {there}, not at {offset}")
        target = scratch / f"{path}{PARTIAL}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(target, flags, 0o644), entry
        except OSError as error:
            raise FileAccessError.of(error, target) from error

    def finish(self, model_id: str, entry: FileEntry) -> int:
        """Verify a file that has all its bytes; the bytes that are there."""
        scratch = self._scratch(model_id)
        partial = scratch / f"{entry.path}{PARTIAL}"
        try:
            size = partial.stat().st_size
            if size < entry.size:
                return size
            if sha256_of(partial) != entry.sha256:
                partial.unlink()
                raise BrokenModelError(f"{entry.path} arrived damaged: its sha256 is wrong")
            partial.rename(scratch / entry.path)
        except OSError as error:
            raise FileAccessError.of(error, partial) from error
        return entry.size

    def commit(self, model_id: str, *, replace: bool) -> int:
        """Give a whole model its name; its bytes. Before this nobody sees any of it."""
        scratch = self._scratch(model_id)
        manifest = self._manifest(model_id)
        missing = [e.path for e in manifest.files if not (scratch / e.path).is_file()]
        if missing:
            raise BrokenModelError(f"{missing[0]} of {model_id} has not arrived")
        inspect_directory(scratch)
        try:
            target = self.root / directory_name(model_id)
            put_in_place(scratch, target, model_id, replace=replace)
            (target / MANIFEST).unlink()
        except OSError as error:
            raise FileAccessError.of(error, scratch) from error
        return manifest.total_bytes

    def abort(self, model_id: str) -> None:
        """Delete what has arrived."""
        self._manifest(model_id)
        shutil.rmtree(self._scratch(model_id), ignore_errors=True)

    def _scratch(self, model_id: str) -> Path:
        return self.root / f"{UPLOADING}{directory_name(model_id)}"

    def _manifest(self, model_id: str) -> Manifest:
        raw = self._read(self._scratch(model_id))
        if raw is None:
            raise UnknownModelError(f"no upload of {check_model_id(model_id)} has begun")
        return parse_manifest(json.dumps(raw).encode(), model_id, "the upload")

    def _entry(self, model_id: str, path: str) -> FileEntry:
        for entry in self._manifest(model_id).files:
            if entry.path == path:
                return entry
        raise UnknownModelError(f"{path!r:.200} is not among the files of this upload")

    def _read(self, scratch: Path) -> object:
        try:
            return json.loads((scratch / MANIFEST).read_bytes())
        except (OSError, ValueError):
            return None

    def _make_room_for(self, scratch: Path) -> None:
        """Forget uploads that nobody has gone on with for a day, and bound how many there are."""
        others = [path for path in self.root.glob(f"{UPLOADING}*") if path != scratch]
        fresh = []
        for path in others:
            with contextlib.suppress(OSError):
                if time.time() - (path / MANIFEST).stat().st_mtime < STALE_S:
                    fresh.append(path)
                    continue
            shutil.rmtree(path, ignore_errors=True)
        if len(fresh) >= MOST_UPLOADS:
            raise BusyError(f"{len(fresh)} uploads are unfinished; finish or cancel one first")


def _document(manifest: Manifest) -> dict[str, object]:
    document: dict[str, object] = json.loads(manifest.to_json())
    return document


def _received(scratch: Path, entry: FileEntry) -> int:
    for name in (entry.path, f"{entry.path}{PARTIAL}"):
        with contextlib.suppress(OSError):
            return min((scratch / name).lstat().st_size, entry.size)
    return 0


def _check_names(manifest: Manifest) -> None:
    names: Mapping[str, int] = manifest.sizes
    for name in names:
        if PurePosixPath(name).suffix.lower() not in SUFFIXES:
            raise BadManifestError(
                f"{name} cannot be uploaded: only {', '.join(sorted(SUFFIXES))} files are taken"
            )
    if CONFIG_FILE not in names:
        raise BadManifestError(f"the upload has no {CONFIG_FILE}")
