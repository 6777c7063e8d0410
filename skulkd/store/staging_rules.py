"""Where staged copies may lie. Everything there can be deleted, so nothing precious may be near."""

import os
from pathlib import Path

from skulkd.store.errors import StagingPlaceError


def check_staging_place(staging: Path, store: Path | None, models: Path) -> None:
    """Raise StagingPlaceError when a purge of staging could delete what is not a copy.

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
        return "lies inside"
    if one in two.parents:
        return "contains"
    return None


def _same_file(one: Path, two: Path) -> bool:
    """Also where two spellings name one directory, as on disks that ignore case."""
    try:
        return one.samefile(two)
    except OSError:
        return False
