"""How `skulkctl` on this machine reaches a daemon that serves HTTPS: a small file in its home.

The daemon writes it at every start, so that `skulkctl` need not read the settings. Must stay cheap
to import: the CLI loads it on every start.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from skulkd.settings.files import make_private_dir, remove_durably, write_atomic


@dataclass(frozen=True, slots=True)
class LocalApi:
    """Address of the daemon, by a name that its certificate has, and who signed that."""

    endpoint: str
    authority: str | None


def read_local_api(file: Path) -> LocalApi | None:
    """None when the daemon of this home serves plain HTTP, or is another user's."""
    try:
        document = json.loads(file.read_bytes())
        endpoint, authority = document["endpoint"], document["authority"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(endpoint, str) or not isinstance(authority, str | None):
        return None
    return LocalApi(endpoint, authority)


def write_local_api(file: Path, api: LocalApi | None) -> None:
    """Replace the file; None removes it. Raises OSError."""
    if api is None:
        remove_durably(file)
        return
    document = {"endpoint": api.endpoint, "authority": api.authority}
    make_private_dir(file.parent)
    write_atomic(file, json.dumps(document).encode(), mode=0o600)
