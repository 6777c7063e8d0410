"""Capture bundles on this machine's disk. The form itself belongs to the contract."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from skulkctl.errors import CliError
from skulkd.wire.bundles import BadBundle, is_bundle, pack_bundle, unpack_bundle

TIMELINE = "timeline.json"

__all__ = ["TIMELINE", "is_bundle", "read_members", "write_bundle"]


def write_bundle(path: Path, members: Mapping[str, bytes], about: Mapping[str, object]) -> None:
    """Put the members into one archive, the manifest first. Raises CliError.

    The file is private: logs and process listings are not for everybody.
    """
    packed = pack_bundle(members, about)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(packed)
    except FileExistsError:
        raise CliError(f"{path} exists already", hints=["choose another:  --file FILE"]) from None
    except OSError as error:
        raise CliError(f"cannot write {path}", str(error.strerror)) from error


def read_members(path: Path) -> dict[str, bytes]:
    """All members by name. Raises CliError when the file is damaged or absurdly large."""
    try:
        with path.open("rb") as file:
            return unpack_bundle(file)
    except BadBundle as error:
        raise CliError(f"{path} is damaged", str(error)) from error
