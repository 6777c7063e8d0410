"""Where a model must go so that the cluster can place it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skulkctl.contexts import DEFAULT_NAME
from skulkctl.endpoints import is_loopback
from skulkctl.errors import CliError, Refused, RouteMissing, Unreachable

if TYPE_CHECKING:
    from skulkctl.cli import Invocation
    from skulkctl.daemon.client import Daemon
    from skulkd.wire.uploads import UploadPlace


@dataclass(frozen=True)
class Destination:
    """A node that takes the model: into its models directory, or into the shared store."""

    daemon: Daemon
    place: UploadPlace
    is_this_machine: bool
    """Whether its models directory is the one this command writes to."""

    @property
    def in_store(self) -> bool:
        return self.place.target == "store"

    def has(self, model_id: str) -> bool:
        """Whether the whole model is there already."""
        from skulkd.wire.downloads import DownloadCompleted

        if self.in_store:
            entries = self.daemon.store_registry().entries
            return any(entry.model_id == model_id for entry in entries)
        return any(
            isinstance(download, DownloadCompleted)
            and download.shard_metadata.model_card.model_id == model_id
            for download in self.daemon.state().downloads.get(self.place.node_id, ())
        )

    def __str__(self) -> str:
        return "the store" if self.in_store else self.place.name


@dataclass(frozen=True)
class Destinations:
    """The store, or every node of the context; empty when the model stays on this machine."""

    nodes: Sequence[Destination] = ()
    is_partial: bool = False
    """Whether some node of the context did not answer, and was left out."""

    @property
    def others(self) -> list[Destination]:
        """Those to which the model must be sent."""
        return [node for node in self.nodes if not node.is_this_machine]

    @property
    def include_this_machine(self) -> bool:
        return len(self.others) < len(self.nodes)

    def __str__(self) -> str:
        return ", ".join(map(str, self.nodes)) if self.others else "this machine"


@contextmanager
def find_destinations(call: Invocation) -> Iterator[Destinations]:
    """With a connection to each node. Raises Unreachable and Refused.

    A machine whose daemon is not running yet and that has no context keeps its models.
    """
    with ExitStack() as connections:
        yield _ask_all(call, connections)


def _ask_all(call: Invocation, connections: ExitStack) -> Destinations:
    found: dict[str, Destination] = {}
    silent: list[CliError] = []
    for endpoint in call.target.context.endpoints:
        daemon = connections.enter_context(closing(call.daemon.at(endpoint)))
        try:
            place = daemon.upload_place()
        except Unreachable as error:
            silent.append(error)
            continue
        except RouteMissing:
            _check_same_disk(endpoint)
            return Destinations()
        is_ours = is_loopback(endpoint) and _is_ours(call.paths.models, place)
        destination = Destination(daemon, place, is_ours)
        if destination.in_store:
            return Destinations([destination])
        found.setdefault(place.node_id, destination)
    if not found and call.target.context.name != DEFAULT_NAME:
        silent[0].hints = ("keep it on this machine:  add --here", *silent[0].hints)
        raise silent[0]
    for gone in silent if found else ():
        call.messages.warning(f"no response, so the model is not sent there: {'; '.join(gone.why)}")
    return Destinations(list(found.values()), bool(found and silent))


def _check_same_disk(endpoint: str) -> None:
    """A node without uploads can read the models directory only on the same machine."""
    if not is_loopback(endpoint):
        raise Refused(
            f"{endpoint} does not accept model files",
            "this server does not support uploads and cannot read the files of this machine",
            hints=["keep it on this machine:  add --here"],
        )


def _is_ours(models: Path, place: UploadPlace) -> bool:
    """Whether the directory is the same one, and not one of the same name behind a tunnel."""
    try:
        found = models.stat()
    except OSError:
        return False
    mark = f"{found.st_dev}:{found.st_ino}:{found.st_ctime_ns}"
    return place.directory_mark == mark and place.directory == str(models)
