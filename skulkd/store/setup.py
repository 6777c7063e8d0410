"""What the settings say about model files on this node, with every path decided. Pure but for
links, which are followed to see whether two paths are one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skulkd.settings.overrides import effective_staging, is_store_host
from skulkd.settings.paths import Paths, expand_home
from skulkd.store.eviction import budget_of
from skulkd.store.staging_area import StagingArea
from skulkd.store.staging_rules import check_staging_place
from skulkd.wire.config import ModelStoreSection, SkulkConfig, StagingSection


@dataclass(frozen=True, slots=True)
class StoreSetup:
    """`store` is None when the feature is off; then a node has only its models directory."""

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
    def cleans_up(self) -> bool:
        """Whether copies are evicted without an operator."""
        return self.area is not None and bool(self.staging and self.staging.cleanup_on_deactivate)

    @property
    def budget_bytes(self) -> int:
        return 0 if self.staging is None else budget_of(self.staging.staging_keep_recent_gb)


def store_setup(
    config: SkulkConfig,
    paths: Paths,
    environ: Mapping[str, str],
    *,
    node_id: str,
    name: str,
    hostname: str,
) -> StoreSetup:
    """Raises StagingPlaceError when staging lies where a purge would delete originals."""
    offline = environ.get("SKULK_OFFLINE", "").strip().lower() == "true"
    store = config.model_store
    if store is None or not store.enabled:
        return StoreSetup(paths.models, offline)
    staging = effective_staging(config, node_id, name, hostname)
    root = None
    if is_store_host(config, node_id, name, hostname):
        root = expand_home(store.store_path, environ).absolute()
    area = None
    if staging is not None and staging.enabled:
        area = StagingArea(expand_home(staging.node_cache_path, environ).absolute())
        check_staging_place(area.root, root, paths.models)
    return StoreSetup(paths.models, offline, store, root, staging, area)
