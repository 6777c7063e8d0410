"""Capture bundles: a `.tar.zst` with a manifest, written and read without trusting it. No HTTP."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from skulkctl.errors import CliError

MANIFEST = "manifest.json"
TIMELINE = "timeline.json"
KIND = "skulkctl/capture-bundle"
MAX_MEMBER_BYTES = 256 * 1024**2
MAX_TOTAL_BYTES = 1024**3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def is_bundle(head: bytes) -> bool:
    """Whether a file that begins like this is compressed with zstd."""
    return head[:4] == _ZSTD_MAGIC


def write_bundle(path: Path, members: Mapping[str, bytes], about: Mapping[str, object]) -> None:
    """Put the members into one archive, the manifest first. Raises CliError.

    The file is private: logs and process listings are not for everybody.
    """
    import zstandard

    listing = [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in members.items()
    ]
    manifest = json.dumps({"kind": KIND, **about, "members": listing}, indent=2).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in {MANIFEST: manifest, **members}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(zstandard.ZstdCompressor(level=9).compress(buffer.getvalue()))
    except FileExistsError:
        raise CliError(f"{path} exists already", hints=["choose another:  --file FILE"]) from None
    except OSError as error:
        raise CliError(f"cannot write {path}", str(error.strerror)) from error


def read_members(path: Path) -> dict[str, bytes]:
    """All members by name. Raises CliError when the file is damaged or absurdly large."""
    import zstandard

    try:
        with path.open("rb") as file:
            reader = zstandard.ZstdDecompressor().stream_reader(file)
            raw = reader.read(MAX_TOTAL_BYTES + 1)
        if len(raw) > MAX_TOTAL_BYTES:
            raise CliError(f"{path} is larger than {MAX_TOTAL_BYTES} bytes when unpacked")
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            return {entry.name: _content(archive, entry) for entry in archive if entry.isfile()}
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as error:
        raise CliError(f"{path} is damaged", str(error)) from error


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(entry)
    return b"" if file is None else file.read(MAX_MEMBER_BYTES)
