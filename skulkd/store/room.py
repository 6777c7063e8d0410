"""The store room of one node: everything about model files, built and connected.

Started and stopped by the node; handlers and the worker use its parts.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skulkd.store.access import store_token
from skulkd.store.announcer import Announcer
from skulkd.store.card_lookup import CardLookup, HubCards
from skulkd.store.caretaker import Caretaker
from skulkd.store.errors import StoreError
from skulkd.store.host import StoreHost
from skulkd.store.hub_desk import HubDesk
from skulkd.store.library import ModelLibrary
from skulkd.store.registry import Registry
from skulkd.store.setup import StoreSetup
from skulkd.store.staging import Staging
from skulkd.store.store_calls import StoreCalls
from skulkd.store.store_link import StoreAddress
from skulkd.store.tls import StoreTls
from skulkd.store.upload_files import UploadFiles
from skulkd.store.uploads import LocalUploads, RemoteUploads, Uploads
from skulkd.store.uses import name_of
from skulkd.store.whereabouts import bind_host, store_host_address
from skulkd.wire.cards import ModelCard
from skulkd.wire.config import ModelStoreSection
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State
from skulkd.wire.uploads import UploadTarget

log = logging.getLogger(__name__)

REBIND_S = 5.0
LONGEST_REBIND_S = 60.0
SUMMARY_S = 30.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the room must know of the rest of the node."""

    node_id: NodeId
    state: Callable[[], State]
    view: Callable[[], State]
    """With readings: names and addresses of nodes are in it."""
    publish: Callable[[DownloadProgress], None]
    running: Callable[[], Iterable[ModelCard]]
    measured: Callable[[], Mapping[NodeId, Sequence[str]]]
    event_log: Path
    logs: Path
    environ: Mapping[str, str]
    secret: str
    secret_for_operators: bool = True
    hf_token: str | None = None
    tls: StoreTls | None = None


@dataclass(slots=True)
class StoreRoom:
    """The parts. `calls` is None without a store, `host` everywhere but on the store host."""

    setup: StoreSetup
    staging: Staging
    caretaker: Caretaker
    announcer: Announcer
    hub: HubDesk
    lookup: CardLookup
    uploads: Uploads
    calls: StoreCalls | None = None
    host: StoreHost | None = None

    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """What runs as long as the daemon, by name; each may be started again after it failed."""
        tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "store announcer": self.announcer.run,
            "storage figures": self._keep_looking,
        }
        if self.setup.area is not None:
            tasks["eviction"] = self.caretaker.run
        host, store = self.host, self.setup.store
        if host is not None and store is not None:
            tasks["store server"] = lambda: self._serve(host, store)
        return tasks

    async def stop(self) -> None:
        await self.staging.stop()
        await self.hub.stop()
        if self.host is not None:
            await self.host.stop()

    def notify(self) -> None:
        """The state has changed."""
        self.caretaker.notify()

    async def _keep_looking(self) -> None:
        """For whoever wants figures without waiting for a disk."""
        while True:
            try:
                await self.caretaker.summary()
            except StoreError as error:
                log.warning("storage cannot be looked at: %s", error.message)
            await asyncio.sleep(SUMMARY_S)

    async def _serve(self, host: StoreHost, store: ModelStoreSection) -> None:
        """Until cancelled."""
        try:
            await self._listen(host, store)
            await asyncio.get_running_loop().create_future()
        finally:
            await host.stop()

    async def _listen(self, host: StoreHost, store: ModelStoreSection) -> None:
        pause_s = REBIND_S
        while True:
            try:
                await host.start(bind_host(store), store.store_port)
            except (OSError, StoreError) as error:
                # A node without its store still answers for the models it has.
                log.warning("the store cannot be served on port %d: %s", store.store_port, error)
                await host.stop()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_REBIND_S)
            else:
                log.info("the store in %s is served on port %d", store.store_path, store.store_port)
                return


def build_store(setup: StoreSetup, library: ModelLibrary, around: Surroundings) -> StoreRoom:
    """The room; nothing runs yet."""
    calls = _calls(setup, around)
    registry = None if setup.store_root is None else Registry(setup.store_root)
    hub = HubDesk(
        root=setup.models if setup.store_root is None else setup.store_root,
        environ=around.environ,
        token=around.hf_token,
        offline=setup.offline,
        registry=registry,
    )
    staging = Staging(
        node_id=around.node_id,
        setup=setup,
        library=library,
        calls=calls,
        publish=around.publish,
        hub=hub.bring,
    )
    caretaker = Caretaker(
        node_id=around.node_id,
        setup=setup,
        staging=staging,
        state=around.state,
        running=around.running,
        event_log=around.event_log,
        logs=around.logs,
    )
    staging.freeable = caretaker.freeable_bytes
    announcer = Announcer(
        around.node_id, setup, library, staging, calls, around.state, around.publish
    )
    caretaker.on_removed = announcer.forget
    hub.arrived = announcer.look_now
    hub_cards = HubCards(around.environ, around.hf_token, setup.offline)
    lookup = CardLookup(setup, hub_cards, calls)
    uploads = _uploads(setup, registry, calls, caretaker, announcer)
    host = None
    if registry is not None:
        host = StoreHost(
            registry,
            around.secret,
            hub,
            held=_held(caretaker),
            tls=None if around.tls is None else around.tls.server,
            deleted=announcer.look,
            describe=lookup.answer,
            uploads=uploads,
            secret_for_operators=around.secret_for_operators,
        )
    return StoreRoom(setup, staging, caretaker, announcer, hub, lookup, uploads, calls, host)


def _uploads(
    setup: StoreSetup,
    registry: Registry | None,
    calls: StoreCalls | None,
    caretaker: Caretaker,
    announcer: Announcer,
) -> Uploads:
    """Into the store where there is one, else into the models directory of this node."""

    async def arrived(model_id: str) -> None:
        if registry is not None:
            await asyncio.to_thread(registry.add, model_id)
        await announcer.look_at_store()

    if calls is not None and registry is None:
        return RemoteUploads(calls, arrived)
    root = setup.models if setup.store_root is None else setup.store_root
    target: UploadTarget = "models" if setup.store_root is None else "store"
    return LocalUploads(UploadFiles(root), target, arrived, _held(caretaker))


def _held(caretaker: Caretaker) -> Callable[[str], str | None]:
    def held(model_id: str) -> str | None:
        return "; ".join(caretaker.in_use().get(name_of(model_id), ())) or None

    return held


def _calls(setup: StoreSetup, around: Surroundings) -> StoreCalls | None:
    store = setup.store
    if store is None:
        return None
    token = store_token(around.secret)

    async def find() -> StoreAddress:
        host = store_host_address(store, around.view(), around.measured(), is_host=setup.is_host)
        tls = None if around.tls is None else around.tls.client
        return StoreAddress(host, store.store_port, token, tls)

    return StoreCalls(find)
