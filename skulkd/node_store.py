"""The store room of a node, connected to the other rooms. Builds; runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from skulkd.api.journal import Journal
from skulkd.api.reach import Reach
from skulkd.node_start import EXIT_BAD_SETTINGS, Start, StartError
from skulkd.store.errors import StoreError
from skulkd.store.library import ModelLibrary
from skulkd.store.room import StoreRoom, Surroundings, build_store
from skulkd.store.setup import StoreSetup, store_setup
from skulkd.wire.cards import ModelCard
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.events import NodeDownloadProgress
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State


def decide_setup(start: Start, node_id: NodeId) -> StoreSetup:
    """What this node does with model files. Raises StartError when that would destroy some."""
    started, sources = start.settings.started, start.settings.sources
    try:
        return store_setup(
            started.config,
            sources.paths,
            sources.environ,
            node_id=node_id,
            name=started.node_name,
            hostname=started.hostname,
        )
    except StoreError as error:
        raise _cannot_start(error) from error


def build_store_room(
    start: Start,
    setup: StoreSetup,
    library: ModelLibrary,
    journal: Journal,
    reach: Reach,
    node_id: NodeId,
    state: tuple[Callable[[], State], Callable[[], State]],
    running: Callable[[], Iterable[ModelCard]],
) -> StoreRoom:
    """The room; `state` is the replicated one and the one with readings."""
    config, sources = start.settings.started.config, start.settings.sources

    def publish(progress: DownloadProgress) -> None:
        journal.append(NodeDownloadProgress(download_progress=progress))

    def measured() -> Mapping[NodeId, Sequence[str]]:
        found: dict[NodeId, list[str]] = {}
        for link in reach.links():
            found.setdefault(link.sink, []).append(link.host)
        return found

    around = Surroundings(
        node_id=node_id,
        state=state[0],
        view=state[1],
        publish=publish,
        running=running,
        measured=measured,
        event_log=sources.paths.event_log,
        logs=sources.paths.log_file.parent,
        environ=sources.environ,
        secret=start.secret.value,
        secret_for_operators=start.settings.started.config.api.secret_for_operators,
        hf_token=config.hf_token,
        tls=start.tls.store,
    )
    room = build_store(setup, library, around)
    journal.on_change(room.notify)
    return room


def _cannot_start(error: StoreError) -> StartError:
    hints = [f"hint: {error.hint}"] if error.hint else []
    return StartError(EXIT_BAD_SETTINGS, [error.message, *hints])
