"""All parts of this node that handle model files, built and connected.

The node starts and stops them; HTTP handlers and the worker use them.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skulkd.store.cards.lookup import CardLookup
from skulkd.store.client.connection import StoreAddress
from skulkd.store.client.store_client import RemoteUploads, StoreClient
from skulkd.store.config import StoreConfig, bind_host, store_host_address
from skulkd.store.errors import StoreError
from skulkd.store.host.registry import Registry
from skulkd.store.host.server import StoreServer
from skulkd.store.host.uploads import LocalUploads, UploadFiles, Uploads
from skulkd.store.hub.child import HubCards
from skulkd.store.hub.downloads import HubDownloads
from skulkd.store.inventory import InventoryPublisher
from skulkd.store.library import ModelLibrary
from skulkd.store.security import StoreTls, store_token
from skulkd.store.staging.evictor import Evictor
from skulkd.store.staging.manager import StagingManager
from skulkd.wire.cards import ModelCard
from skulkd.wire.config import ModelStoreSection
from skulkd.wire.downloads import DownloadProgress
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State
from skulkd.wire.uploads import UploadTarget

log = logging.getLogger(__name__)

REBIND_S = 5.0
LONGEST_REBIND_S = 60.0
STORAGE_S = 30.0


@dataclass(frozen=True, slots=True)
class StoreDeps:
    """What this room uses of the rest of the node."""

    node_id: NodeId
    state: Callable[[], State]
    view: Callable[[], State]
    """With readings: it has the names and addresses of nodes."""
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
class StoreService:
    """`client` is None without a store, `server` on all nodes but the store host."""

    config: StoreConfig
    staging: StagingManager
    evictor: Evictor
    inventory: InventoryPublisher
    hub: HubDownloads
    lookup: CardLookup
    uploads: Uploads
    client: StoreClient | None = None
    server: StoreServer | None = None

    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Long-running tasks by name; each may be started again after it failed."""
        tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "model inventory": self.inventory.run,
            "storage figures": self._measure_storage,
        }
        if self.config.area is not None:
            tasks["eviction"] = self.evictor.run
        server, store = self.server, self.config.store
        if server is not None and store is not None:
            tasks["store server"] = lambda: _serve(server, store)
        return tasks

    async def stop(self) -> None:
        await self.staging.stop()
        await self.hub.stop()
        if self.server is not None:
            await self.server.stop()

    def notify(self) -> None:
        """The state has changed."""
        self.evictor.notify()

    async def _measure_storage(self) -> None:
        """Keeps `evictor.last` fresh, for readers that must not wait for a disk."""
        while True:
            try:
                await self.evictor.storage()
            except StoreError as error:
                log.warning("cannot measure storage: %s", error.message)
            await asyncio.sleep(STORAGE_S)


async def _serve(server: StoreServer, store: ModelStoreSection) -> None:
    """Until cancelled."""
    try:
        await _listen(server, store)
        await asyncio.get_running_loop().create_future()
    finally:
        await server.stop()


async def _listen(server: StoreServer, store: ModelStoreSection) -> None:
    pause_s = REBIND_S
    while True:
        try:
            await server.start(bind_host(store), store.store_port)
        except (OSError, StoreError) as error:
            # Without the store this node still serves the models it has.
            log.warning("cannot serve the store on port %d: %s", store.store_port, error)
            await server.stop()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_REBIND_S)
        else:
            log.info("serving the store %s on port %d", store.store_path, store.store_port)
            return


def build_store(config: StoreConfig, library: ModelLibrary, deps: StoreDeps) -> StoreService:
    """Build and connect the parts; nothing runs yet."""
    client = _client(config, deps)
    registry = None if config.store_root is None else Registry(config.store_root)
    hub = HubDownloads(
        root=config.originals_root,
        environ=deps.environ,
        token=deps.hf_token,
        offline=config.offline,
        registry=registry,
    )
    staging = StagingManager(deps.node_id, config, library, client, deps.publish, hub)
    evictor = Evictor(
        node_id=deps.node_id,
        config=config,
        staging=staging,
        state=deps.state,
        running=deps.running,
        event_log=deps.event_log,
        logs=deps.logs,
    )
    staging.freeable = evictor.freeable_bytes
    inventory = InventoryPublisher(
        deps.node_id, config, library, staging, client, deps.state, deps.publish
    )
    evictor.on_removed = inventory.forget
    hub.on_complete = inventory.refresh
    hub_cards = HubCards(deps.environ, deps.hf_token, config.offline)
    lookup = CardLookup(config, hub_cards, client)
    uploads = _uploads(config, registry, client, evictor, inventory)
    server = None
    if registry is not None:
        server = StoreServer(
            registry,
            deps.secret,
            hub,
            in_use_reason=evictor.in_use_reason,
            tls=None if deps.tls is None else deps.tls.server,
            on_deleted=inventory.refresh_soon,
            describe=lookup.find_as_host,
            uploads=uploads,
            secret_for_operators=deps.secret_for_operators,
        )
    return StoreService(config, staging, evictor, inventory, hub, lookup, uploads, client, server)


def _uploads(
    config: StoreConfig,
    registry: Registry | None,
    client: StoreClient | None,
    evictor: Evictor,
    inventory: InventoryPublisher,
) -> Uploads:
    """Into the store where there is one, else into the models directory of this node."""

    async def on_complete(model_id: str) -> None:
        if registry is not None:
            await asyncio.to_thread(registry.add, model_id)
        await inventory.refresh_from_store()

    if client is not None and registry is None:
        return RemoteUploads(client, on_complete)
    files = UploadFiles(config.originals_root)
    target: UploadTarget = "store" if config.is_host else "models"
    return LocalUploads(files, target, on_complete, evictor.in_use_reason)


def _client(config: StoreConfig, deps: StoreDeps) -> StoreClient | None:
    store = config.store
    if store is None:
        return None
    token = store_token(deps.secret)

    async def find() -> StoreAddress:
        host = store_host_address(store, deps.view(), deps.measured(), is_host=config.is_host)
        tls = None if deps.tls is None else deps.tls.client
        return StoreAddress(host, store.store_port, token, tls)

    return StoreClient(find)
