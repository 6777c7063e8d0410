"""Sending a model to the cluster: every file from the byte that is missing.

A node registers a model only when all of it has arrived and was verified, so an interrupted
upload leaves nothing to be placed, and the next one goes on where it ended.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skulkctl.daemon.answers import Upload
from skulkctl.daemon.codes import MODEL_EXISTS
from skulkctl.daemon.uploads import COMMIT_S, PIECE_S
from skulkctl.errors import Refused
from skulkctl.models.sources import Source, bring_here
from skulkctl.output.progress import Part, Progress, Transfer

if TYPE_CHECKING:
    from skulkctl.cli import Invocation
    from skulkctl.models.destinations import Destination, Destinations

_PIECE_BYTES = 1 << 20
# What a daemon takes: data, and no programs.
_SUFFIXES = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".safetensors", ".toml", ".md")


def send(call: Invocation, source: Source, destinations: Destinations) -> str:
    """Bring the model to all of these; its id. What is complete there is left alone."""
    known = source.model_id
    if known and all(node.has(known) for node in destinations.others):
        return bring_here(call, source)[0] if destinations.include_this_machine else known
    model_id, directory, kept = _directory(call, source, destinations)
    files = describe(call, directory)
    for node in destinations.others:
        upload(call, node, model_id, files, replaces=source.replaces)
        call.if_interrupted = f"not every node has {model_id}; repeat the command"
    if not kept:
        shutil.rmtree(directory, ignore_errors=True)
    return model_id


def _directory(
    call: Invocation, source: Source, destinations: Destinations
) -> tuple[str, Path, bool]:
    """Id, files, and whether they stay here: they do where this machine's daemon uses them.

    Otherwise they are in the cache until they were sent, so that a repeated command need not
    download them again.
    """
    if source.model_id:
        own = call.paths.models / source.model_id.replace("/", "--")
        if (own / "config.json").is_file():
            return source.model_id, own, True
    if destinations.include_this_machine:
        return (*bring_here(call, source), True)
    outgoing = call.paths.cache / "outgoing"
    if source.model_id is None:
        # An import is made anew each time: PATH may have changed.
        outgoing /= "imported"
        shutil.rmtree(outgoing, ignore_errors=True)
    return (*bring_here(call, source, outgoing), False)


@dataclass(frozen=True)
class ModelFile:
    """One file as it is sent; `path` is relative, with slashes."""

    path: str
    place: Path
    size: int
    sha256: str


def describe(call: Invocation, directory: Path) -> list[ModelFile]:
    """Every file of a model directory that is sent, with its checksum."""
    places = [place for place in sorted(directory.rglob("*")) if _is_sent(place, directory)]
    total = sum(place.stat().st_size for place in places)
    found = []
    with Progress(call.quiet) as line:
        progress = _Progress(line, "checking", total)
        for place in places:
            digest, size = hashlib.sha256(), 0
            for piece in _pieces(place):
                digest.update(piece)
                size += len(piece)
                progress.add(len(piece))
            path = place.relative_to(directory).as_posix()
            found.append(ModelFile(path, place, size, digest.hexdigest()))
    return found


def _is_sent(place: Path, directory: Path) -> bool:
    hidden = any(part.startswith(".") for part in place.relative_to(directory).parts)
    return place.is_file() and not hidden and place.suffix.lower() in _SUFFIXES


def upload(
    call: Invocation,
    node: Destination,
    model_id: str,
    files: Sequence[ModelFile],
    *,
    replaces: bool = False,
) -> None:
    """Send the files of a model. Raises CliError; the next attempt uses what has arrived."""
    with Progress(call.quiet) as line:
        received = _begin(node, model_id, files, replaces=replaces)
        if received is None:
            return
        progress = _Progress(
            line, f"sending to {node}", sum(file.size for file in files), str(node)
        )
        # These two take as long as they take, whatever --timeout says about an answer.
        sending, committing = node.daemon.within(PIECE_S), node.daemon.within(COMMIT_S)
        for file in files:
            offset = received.get(file.path, 0)
            progress.skip(offset)
            if offset < file.size or file.size == 0:
                content = Upload(_counted(file, offset, progress), file.size - offset)
                sending.send_file(model_id, file.path, offset, content)
        line.show("commit", f"{node} checks {model_id}")
        call.if_interrupted = f"{node} may still register {model_id}"
        committing.commit_upload(model_id, replace=replaces)


def _begin(
    node: Destination, model_id: str, files: Sequence[ModelFile], *, replaces: bool
) -> dict[str, int] | None:
    """Bytes by path that are there already; None when the whole model is."""
    from skulkd.wire.ids import ModelId
    from skulkd.wire.uploads import UploadFile, UploadRequest

    listed = [UploadFile(path=file.path, size=file.size, sha256=file.sha256) for file in files]
    wanted = UploadRequest(model_id=ModelId(model_id), files=listed, replace=replaces)
    try:
        return node.daemon.begin_upload(wanted).received
    except Refused as error:
        if error.code == MODEL_EXISTS:
            return None
        raise


class _Progress:
    """Bytes of all files together, on one line."""

    def __init__(
        self, line: Progress, label: str, total_bytes: int, name: str = "this machine"
    ) -> None:
        self._line = line
        self._name = name
        self._label = label
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._transfer = Transfer()

    def skip(self, count: int) -> None:
        """Bytes that need no work; the rate must not count them."""
        self._done_bytes += count

    def add(self, count: int) -> None:
        self._done_bytes += count
        shown = self._transfer.text(self._label, self._done_bytes, self._total_bytes)
        part = Part(self._name, self._label, self._done_bytes, self._total_bytes)
        self._line.show(self._label, shown, [part])


def _pieces(place: Path, offset: int = 0) -> Iterator[bytes]:
    with place.open("rb") as stream:
        stream.seek(offset)
        while piece := stream.read(_PIECE_BYTES):
            yield piece


def _counted(file: ModelFile, offset: int, progress: _Progress) -> Iterator[bytes]:
    """The rest of a file; each piece counts when the next one is asked for."""
    for piece in _pieces(file.place, offset):
        yield piece
        progress.add(len(piece))
