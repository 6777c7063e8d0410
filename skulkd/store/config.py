"""The settings of model files on this node: paths, the store host, the staging area.

Pure, except that links are followed to see whether two paths are the same directory.
"""

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skulkd.settings.overrides import effective_staging, is_store_host, normalised, same_host
from skulkd.settings.paths import Paths, expand_home
from skulkd.store.errors import StagingPlaceError
from skulkd.store.staging.area import StagingArea
from skulkd.wire.config import ModelStoreSection, SkulkConfig, StagingSection
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State

LOOPBACK = "127.0.0.1"
_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """`store` is None when no store is configured; then there is only the models directory."""

    models: Path
    offline: bool = False
    store: ModelStoreSection | None = None
    store_root: Path | None = None
    """Set on the store host only."""
    staging: StagingSection | None = None
    area: StagingArea | None = None
    """None when this node does not stage."""

    @property
    def is_host(self) -> bool:
        return self.store_root is not None

    @property
    def originals_root(self) -> Path:
        """Where new models go: into the store on its host, else into the models directory."""
        return self.models if self.store_root is None else self.store_root

    @property
    def download_root(self) -> Path:
        """Where this node puts models that an instance needs."""
        return self.models if self.area is None else self.area.root

    @property
    def keep_recent_bytes(self) -> int | None:
        """How much eviction keeps; None when only an operator deletes copies."""
        if self.area is None or self.staging is None or not self.staging.cleanup_on_deactivate:
            return None
        return int(self.staging.staging_keep_recent_gb * _GIB)


def load_store_config(
    config: SkulkConfig,
    paths: Paths,
    environ: Mapping[str, str],
    *,
    node_id: str,
    name: str,
    hostname: str,
) -> StoreConfig:
    """Raises StagingPlaceError when a purge of the staging area would delete originals."""
    offline = environ.get("SKULK_OFFLINE", "").strip().lower() == "true"
    store = config.model_store
    if store is None or not store.enabled:
        return StoreConfig(paths.models, offline)
    staging = effective_staging(config, node_id, name, hostname)
    root = None
    if is_store_host(config, node_id, name, hostname):
        root = expand_home(store.store_path, environ).absolute()
    area = None
    if staging is not None and staging.enabled:
        area = StagingArea(expand_home(staging.node_cache_path, environ).absolute())
        check_staging_place(area.root, root, paths.models)
    return StoreConfig(paths.models, offline, store, root, staging, area)


# --- where staged copies may be ---


def check_staging_place(staging: Path, store: Path | None, models: Path) -> None:
    """Raise StagingPlaceError when a purge of staging could delete more than copies.

    `store` is None on nodes that do not host it. Symbolic links are followed first.
    """
    for other, what in ((store, "the store"), (models, "the models directory")):
        relation = None if other is None else _relation(staging, other)
        if relation is not None:
            raise StagingPlaceError(
                f"staging {staging} {relation} {what} {other}; a purge would delete originals",
                hint="choose another model_store.staging.node_cache_path, or switch staging off"
                " for this node (node_overrides.NODE.staging.enabled: false)",
            )


def _relation(staging: Path, other: Path) -> str | None:
    one, two = Path(os.path.realpath(staging)), Path(os.path.realpath(other))
    if one == two or _same_file(one, two):
        return "is"
    if two in one.parents:
        return "is inside"
    if one in two.parents:
        return "contains"
    return None


def _same_file(one: Path, two: Path) -> bool:
    """Also true for two spellings of one directory, on file systems that ignore case."""
    try:
        return one.samefile(two)
    except OSError:
        return False


# --- the address of the store host ---


def bind_host(store: ModelStoreSection) -> str:
    """Where the store host listens: at the address for URLs, else on all interfaces."""
    try:
        return str(ipaddress.ip_address(store.store_http_host or ""))
    except ValueError:
        return "0.0.0.0"  # noqa: S104 - every request needs the cluster's token


def store_host_address(
    store: ModelStoreSection,
    state: State,
    measured: Mapping[NodeId, Sequence[str]],
    *,
    is_host: bool,
) -> str:
    """The host in the store's URL. `measured` are addresses that responded, the best first.

    `store_http_host` is used as it is. Otherwise `store_host` is looked up among the nodes of the
    cluster, because their names need not be in DNS.
    """
    if store.store_http_host is not None:
        return store.store_http_host
    if is_host:
        return LOOPBACK
    for node_id, identity in state.node_identities.items():
        named = normalised(store.store_host) == normalised(identity.friendly_name)
        if node_id != store.store_host and not named:
            continue
        known = [*measured.get(node_id, ()), *_addresses(state, node_id)]
        if known:
            return known[0]
    for node_id, identity in state.node_identities.items():
        if same_host(store.store_host, identity.friendly_name) and measured.get(node_id):
            return measured[node_id][0]
    return store.store_host


def _addresses(state: State, node_id: NodeId) -> list[str]:
    network = state.node_network.get(node_id)
    found = [] if network is None else [face.ip_address for face in network.interfaces]
    return sorted(filter(_is_reachable, found), key=lambda address: ":" in address)


def _is_reachable(address: str) -> bool:
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return not (known.is_loopback or known.is_link_local or known.is_unspecified)
