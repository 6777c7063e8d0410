"""Sending a model to the cluster: where it goes, and every file from the byte that is missing.

The daemon registers a model only when all of it has arrived and was verified, so an interrupted
upload leaves nothing to be placed and the next one goes on where it ended.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from skulkctl.client import Client
from skulkctl.contexts import DEFAULT_NAME, Target
from skulkctl.daemon.answers import error_of, read_json
from skulkctl.endpoints import is_loopback
from skulkctl.errors import CliError, Refused, Unreachable
from skulkctl.progress import ProgressLine, Transfer
from skulkctl.views.read import integer, mapping, sequence, tagged, text

if TYPE_CHECKING:
    from skulkctl.invocation import Invocation

PATH = "/v1/model-uploads"
SILENCE_S = 60.0
COMMIT_S = 600.0
_PIECE = 1 << 20
# What a daemon takes: data, and no programs.
_SUFFIXES = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".safetensors", ".toml", ".md")


@dataclass(frozen=True)
class Destination:
    """A node that takes the model: into its models directory, or into the shared store."""

    endpoint: str
    node_id: str
    name: str
    in_store: bool
    is_this_machine: bool
    """Whether its models directory is the one this command writes to."""

    def __str__(self) -> str:
        return "the store" if self.in_store else self.name


def destinations(call: Invocation) -> tuple[list[Destination], bool]:
    """Where a model must go so that the cluster can place it; empty for this machine alone.

    The second is whether some node of the context did not answer, and was left out.

    That is the store, else every node of the context. A machine whose daemon is not running yet
    and that has no context keeps its models. Raises Unreachable and Refused.
    """
    endpoints = call.target.context.endpoints
    found: dict[str, Destination] = {}
    silent: list[CliError] = []
    for endpoint in endpoints:
        try:
            destination = _ask(call, endpoint)
        except Unreachable as error:
            silent.append(error)
            continue
        if destination is None:
            _check_stock(endpoint)
            return [], False
        if destination.in_store:
            return [destination], False
        found.setdefault(destination.node_id, destination)
    if not found and call.target.context.name != DEFAULT_NAME:
        silent[0].hints = ("keep it on this machine:  add --here", *silent[0].hints)
        raise silent[0]
    for gone in silent if found else ():
        call.talk.warning(f"no answer, so the model does not go there: {'; '.join(gone.why)}")
    return list(found.values()), bool(found and silent)


def has_model(call: Invocation, destination: Destination, model_id: str) -> bool:
    """Whether the whole model is there already."""
    client = client_for(call, destination.endpoint)
    if destination.in_store:
        entries = sequence(client.get("/store/registry"), "entries")
        return any(text(entry, "model_id") == model_id for entry in entries)
    downloads = mapping(client.get("/state"), "downloads")
    states = [tagged(entry) for entry in sequence(downloads, destination.node_id)]
    return any(kind == "DownloadCompleted" and _model_of(body) == model_id for kind, body in states)


def upload(
    call: Invocation,
    destination: Destination,
    model_id: str,
    files: Sequence[ModelFile],
    *,
    replaces: bool = False,
) -> None:
    """Send the files of a model. Raises CliError; the next attempt uses what has arrived."""
    client = client_for(call, destination.endpoint)
    with ProgressLine(call.quiet) as line:
        received = _begin(client, model_id, files, replaces=replaces)
        if received is None:
            return
        total = sum(file.size for file in files)
        sender = _Sender(client, model_id, line, f"sending to {destination}", total)
        for file in files:
            sender.send(file, received.get(file.path, 0))
        line.show("commit", f"{destination} checks {model_id}")
        client.timeout_s = COMMIT_S
        query = "?replace=true" if replaces else ""
        client.change("POST", f"{PATH}/commit{query}", {"modelId": model_id})


@dataclass(frozen=True)
class ModelFile:
    """One file as it is sent; `path` is relative, with slashes."""

    path: str
    place: Path
    size: int
    sha256: str


class _Sender:
    """Sends files one after the other and shows how far all of them are."""

    def __init__(
        self, client: Client, model_id: str, line: ProgressLine, label: str, total: int
    ) -> None:
        self._client = client
        self._model_id = model_id
        self._line = line
        self._label = label
        self._total = total
        self._done = 0
        self._transfer = Transfer()

    def send(self, file: ModelFile, offset: int) -> None:
        self._done += offset
        if offset < file.size or file.size == 0:
            query = {"model_id": self._model_id, "path": file.path, "offset": str(offset)}
            path = f"{PATH}/file?{urlencode(query)}"
            answer = self._client.stream(
                "PUT", path, self._pieces(file, offset), file.size - offset, SILENCE_S
            )
            read_json(answer)

    def _pieces(self, file: ModelFile, offset: int) -> Iterator[bytes]:
        with file.place.open("rb") as stream:
            stream.seek(offset)
            while piece := stream.read(_PIECE):
                yield piece
                self._done += len(piece)
                shown = self._transfer.text(self._label, self._done, self._total)
                self._line.show("send", shown, self._done / max(1, self._total))


def client_for(call: Invocation, endpoint: str) -> Client:
    """A client of one node of the context."""
    context = replace(call.target.context, endpoints=(endpoint,))
    target: Target = replace(call.target, context=context)
    return Client(target, call.timeout_s(15.0), call.talk.detail)


def _ask(call: Invocation, endpoint: str) -> Destination | None:
    """What the node says of itself; None when it is one that takes no uploads."""
    place = client_for(call, endpoint).get_optional(PATH)
    if place is None:
        return None
    return Destination(
        endpoint=endpoint,
        node_id=text(place, "nodeId") or endpoint,
        name=text(place, "name") or endpoint,
        in_store=text(place, "target") == "store",
        is_this_machine=is_loopback(endpoint) and _is_ours(call.paths.models, place),
    )


def _is_ours(models: Path, place: object) -> bool:
    """Whether the directory is the same one, and not one of the same name behind a tunnel."""
    mark = text(place, "directoryMark")
    try:
        found = models.stat()
    except OSError:
        return False
    same = mark == f"{found.st_dev}:{found.st_ino}:{found.st_ctime_ns}"
    return same and text(place, "directory") == str(models)


def _check_stock(endpoint: str) -> None:
    """A stock node of this machine may read its models directory; another one sees nothing."""
    if not is_loopback(endpoint):
        raise Refused(
            f"{endpoint} cannot take model files",
            "this server has no uploads, and it does not see the files of this machine",
            hints=["keep it on this machine:  add --here"],
        )


def _model_of(body: Mapping[str, object]) -> str | None:
    kind_and_shard = tagged(body.get("shardMetadata"))
    return text(kind_and_shard[1], "modelCard", "modelId")


def describe(call: Invocation, directory: Path) -> list[ModelFile]:
    """Every file of a model directory that is sent, with its checksum."""
    places = [place for place in sorted(directory.rglob("*")) if _is_sent(place, directory)]
    total, done, transfer = sum(place.stat().st_size for place in places), 0, Transfer()
    found = []
    with ProgressLine(call.quiet) as line:
        for place in places:
            digest, size = hashlib.sha256(), 0
            with place.open("rb") as stream:
                while piece := stream.read(_PIECE):
                    digest.update(piece)
                    size, done = size + len(piece), done + len(piece)
                    shown = transfer.text("checking", done, total)
                    line.show("check", shown, done / max(1, total))
            path = place.relative_to(directory).as_posix()
            found.append(ModelFile(path, place, size, digest.hexdigest()))
    return found


def _is_sent(place: Path, directory: Path) -> bool:
    hidden = any(part.startswith(".") for part in place.relative_to(directory).parts)
    return place.is_file() and not hidden and place.suffix.lower() in _SUFFIXES


def _begin(
    client: Client, model_id: str, files: Sequence[ModelFile], *, replaces: bool
) -> dict[str, int] | None:
    """Bytes by path that are there already; None when the whole model is."""
    listed = [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in files]
    body = {"modelId": model_id, "files": listed, "replace": replaces}
    answer = client.send("POST", PATH, body=json.dumps(body).encode())
    if answer.status == HTTPStatus.CONFLICT and _kind(answer.body) == "model_exists":
        return None
    if not answer.ok:
        raise error_of(answer)
    received = mapping(read_json(answer), "received")
    return {path: integer(received, path) or 0 for path in received}


def _kind(body: bytes) -> str | None:
    try:
        return text(json.loads(body), "error", "refusal", "kind")
    except ValueError:
        return None
