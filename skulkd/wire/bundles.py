"""A capture bundle as a file: `.tar.zst`, the manifest first, one member per piece of evidence.

The daemon writes one of a node or a runner, `skulkctl` one of a whole placement and reads both,
so the form is part of the contract. Bytes in, bytes out; no HTTP and no disk.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

MANIFEST = "manifest.json"
KIND = "skulk/capture-bundle"
MEDIA_TYPE = "application/zstd"
MAX_MEMBER_BYTES = 256 * 1024**2
MAX_TOTAL_BYTES = 1024**3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


class BadBundle(ValueError):
    """Bytes that are no bundle, or an absurdly large one."""


def is_bundle(head: bytes) -> bool:
    """Whether a file that begins like this is compressed with zstd."""
    return head[:4] == _ZSTD_MAGIC


def file_name(about: str, stamp: str) -> str:
    """`skulk-capture-ABOUT-STAMP.tar.zst`, with nothing in it that a file name may not have."""
    return f"skulk-capture-{_ODD.sub('-', about)}-{_ODD.sub('', stamp)}.tar.zst"


def pack_bundle(members: Mapping[str, bytes], about: Mapping[str, object]) -> bytes:
    """One archive of these members; the manifest lists each with size and checksum."""
    import zstandard

    listing = [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in members.items()
    ]
    manifest = pretty_json({"kind": KIND, **about, "members": listing})
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in {MANIFEST: manifest, **members}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
    return zstandard.ZstdCompressor(level=9).compress(buffer.getvalue())


def unpack_bundle(source: IO[bytes]) -> dict[str, bytes]:
    """All members by name. Raises BadBundle and OSError."""
    import zstandard

    try:
        raw = zstandard.ZstdDecompressor().stream_reader(source).read(MAX_TOTAL_BYTES + 1)
        if len(raw) > MAX_TOTAL_BYTES:
            raise BadBundle(f"larger than {MAX_TOTAL_BYTES} bytes when unpacked")
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            return {entry.name: _content(archive, entry) for entry in archive if entry.isfile()}
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as error:
        raise BadBundle(str(error)) from error


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(entry)
    return b"" if file is None else file.read(MAX_MEMBER_BYTES)


def evidence(capture: Mapping[str, Any], place: str = "") -> dict[str, bytes]:
    """The JSON answer of a capture in pieces that a person can open, below this place."""
    node = capture.get("nodeDiagnostics") or {}
    samples: Sequence[Mapping[str, Any]] = capture.get("processSamples") or []
    members = {
        "diagnostics.json": pretty_json(node),
        "processes.json": pretty_json(node.get("processes") or []),
        "recorder.json": pretty_json(capture.get("flightRecorder") or []),
        "runner.json": pretty_json(capture.get("runner")),
        "mlx-memory.json": pretty_json(capture.get("mlxMemory")),
        "warnings.json": pretty_json(capture.get("warnings") or []),
        "samples.json": pretty_json([_without_text(sample) for sample in samples]),
    }
    for sample in samples:
        body = str(sample.get("stdout") or "")
        if wrong := sample.get("error") or sample.get("stderr"):
            body += f"\n# {wrong}\n"
        members[f"{_ODD.sub('_', str(sample.get('name') or 'sample'))}.txt"] = body.encode()
    return {f"{place}{name}": data for name, data in members.items()}


def _without_text(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sample.items() if key not in ("stdout", "stderr")}


def pretty_json(document: object) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
