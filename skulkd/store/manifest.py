"""The manifest of a model: every file with its size and sha256. Pure.

A manifest comes from another machine, which may be broken or hostile: nothing in it is used as a
path or a size before it was checked here.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from skulkd.settings.problems import printable
from skulkd.store.errors import BadManifestError
from skulkd.wire.cards import ModelCard

MAX_FILES = 20_000
MAX_PATH_LENGTH = 400
MAX_PART_LENGTH = 200
MAX_FILE_BYTES = 1 << 50
PARTIAL = ".partial"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file; `path` is relative, with slashes. `sha256` is empty while it is unknown."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """All files of a model, and its card if the store host can make one."""

    model_id: str
    files: tuple[FileEntry, ...]
    card: ModelCard | None = None

    @property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.files)

    @property
    def sizes(self) -> dict[str, int]:
        return {entry.path: entry.size for entry in self.files}

    def to_json(self) -> bytes:
        files = [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in self.files]
        card = None if self.card is None else json.loads(self.card.model_dump_json())
        document = {"model_id": self.model_id, "files": files, "card": card}
        return json.dumps(document).encode()


def parse_listing(raw: bytes, model_id: str) -> Manifest:
    """As `parse_manifest`, without checksums: for files that are verified later."""
    return _parse(raw, model_id, "the store", checksums=False)


def parse_manifest(raw: bytes, model_id: str, source: str = "the store") -> Manifest:
    """The manifest of this model. Raises BadManifestError, which names `source`."""
    return _parse(raw, model_id, source, checksums=True)


def _parse(raw: bytes, model_id: str, source: str, *, checksums: bool) -> Manifest:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadManifestError(f"{source}'s manifest of {model_id} is not JSON") from error
    if not isinstance(document, dict) or document.get("model_id") != model_id:
        raise BadManifestError(f"{source}'s manifest is not that of {model_id}")
    files = document.get("files")
    if not isinstance(files, list) or not 0 < len(files) <= MAX_FILES:
        raise BadManifestError(f"{source}'s manifest of {model_id} has no usable list of files")
    entries = tuple(_entry(item, model_id, source, checksums=checksums) for item in files)
    _check_together(entries, model_id, source)
    return Manifest(model_id, entries, _card(document.get("card"), model_id))


def path_problem(path: str) -> str | None:
    """Why a relative path of a model's file is refused; None when it is valid."""
    if not path or len(path) > MAX_PATH_LENGTH:
        return "it is empty or too long"
    if not path.isprintable() or "\\" in path:
        return "it has a backslash or a control character"
    for part in path.split("/"):
        if not part or len(part) > MAX_PART_LENGTH:
            return "a part of it is empty or too long"
        # Hidden files are our own; "." and ".." lead elsewhere.
        if part.startswith("."):
            return "a part of it begins with a dot"
    if path.endswith(PARTIAL):
        return f"{PARTIAL} is reserved for incomplete files"
    return None


def _entry(item: Any, model_id: str, source: str, *, checksums: bool) -> FileEntry:
    if not checksums and isinstance(item, dict):
        item = {**item, "sha256": ""}
    match item:
        case {"path": str(path), "size": int(size), "sha256": str(digest)}:
            wrong = path_problem(path)
            if wrong is None and not 0 <= size <= MAX_FILE_BYTES:
                wrong = f"its size of {size} bytes is out of range"
            if wrong is None and checksums and _SHA256.fullmatch(digest) is None:
                wrong = "its sha256 is not a checksum"
            if wrong is None:
                return FileEntry(path, size, digest)
            raise BadManifestError(
                f'{source} lists the file "{printable(path[:MAX_PATH_LENGTH])}" of {model_id},'
                f" which is refused: {wrong}"
            )
    raise BadManifestError(f"{source}'s manifest of {model_id} has a damaged entry")


def _check_together(entries: Sequence[FileEntry], model_id: str, source: str) -> None:
    # Some disks do not tell upper from lower case, so two such files would overwrite each other.
    seen = {entry.path.casefold() for entry in entries}
    if len(seen) != len(entries):
        raise BadManifestError(f"{source} lists a file of {model_id} twice")
    for entry in entries:
        parts = entry.path.casefold().split("/")
        if any("/".join(parts[:depth]) in seen for depth in range(1, len(parts))):
            raise BadManifestError(f"{source} lists a file of {model_id} and as a directory")


def _card(found: object, model_id: str) -> ModelCard | None:
    if not isinstance(found, Mapping):
        return None
    try:
        card = ModelCard.model_validate_json(json.dumps(found))
    except ValidationError:
        return None
    return card if card.model_id == model_id else None
