"""Calls about the files of models: copies on the nodes, purging them, the shared store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon import stock
from skulkctl.daemon.calls import Call, Steps, ask, call, is_stock, segment

if TYPE_CHECKING:
    from skulkd.wire.storage import (
        ClusterStorage,
        PurgeRequest,
        PurgeResult,
        StoreDeleteAnswer,
        StoreDownloadAnswer,
        StoreDownloads,
        StoreHealth,
        StoreRegistry,
    )

PURGE_S = 90.0


def storage(*, local: bool = False) -> Steps[ClusterStorage]:
    """The storage of every node, or only of the one that answers. See `tells_all_storage`."""
    from skulkd.wire.storage import ClusterStorage

    if (yield from is_stock()):
        return (yield from stock.own_storage())
    query = [("local", "true")] if local else []
    return (yield from ask(call("GET", "/store/storage/cluster", ClusterStorage, query=query)))


def tells_all_storage() -> Steps[bool]:
    """Whether the node that answers knows the storage of the others."""
    return not (yield from is_stock())


def purge(wanted: PurgeRequest) -> Call[PurgeResult]:
    """Delete staged copies that nothing uses, or tell what would be deleted."""
    from skulkd.wire.storage import PurgeResult

    return call("POST", "/v1/cluster/purge-staging", PurgeResult, body=wanted, usual_s=PURGE_S)


def store_health() -> Steps[StoreHealth]:
    """How much room the store has. Raises Refused when there is no store."""
    from skulkd.wire.storage import StoreHealth

    return (yield from stock.store_with_codes(call("GET", "/store/health", StoreHealth)))


def store_registry() -> Steps[StoreRegistry]:
    """The models in the store. Raises Refused when there is no store."""
    from skulkd.wire.storage import StoreRegistry

    return (yield from stock.store_with_codes(call("GET", "/store/registry", StoreRegistry)))


def store_downloads() -> Call[StoreDownloads]:
    """What the store is fetching."""
    from skulkd.wire.storage import StoreDownloads

    return call("GET", "/store/downloads", StoreDownloads)


def pull(model_id: str) -> Call[StoreDownloadAnswer]:
    """Have the store download a model."""
    from skulkd.wire.storage import StoreDownloadAnswer

    return call("POST", f"/store/models/{segment(model_id)}/download", StoreDownloadAnswer)


def pull_status(model_id: str) -> Call[StoreDownloadAnswer]:
    """How far the store is with a model."""
    from skulkd.wire.storage import StoreDownloadAnswer

    return call("GET", f"/store/models/{segment(model_id)}/download/status", StoreDownloadAnswer)


def delete_stored(model_id: str) -> Steps[StoreDeleteAnswer]:
    """Delete the files of a model from the store."""
    from skulkd.wire.storage import StoreDeleteAnswer

    deleted = call("DELETE", f"/store/models/{segment(model_id)}", StoreDeleteAnswer)
    return (yield from stock.store_with_codes(deleted))
