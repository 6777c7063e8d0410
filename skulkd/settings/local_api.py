"""How `skulkctl` on this machine reaches the daemon of this user: a small file in its home.

The daemon writes it at every start, so that `skulkctl` need not read the settings. Must stay cheap
to import: the CLI loads it on every start.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from skulkd.settings.files import make_private_dir, remove_durably, write_atomic


@dataclass(frozen=True, slots=True)
class LocalApi:
    """Address of the daemon; with HTTPS by a name that its certificate has, and who signed that."""

    endpoint: str
    authority: str | None
    pid: int = 0
    """Its process; unknown in files of older versions."""

    @property
    def is_https(self) -> bool:
        return self.endpoint.startswith("https://")

    @property
    def is_stale(self) -> bool:
        """Whether the daemon ended without removing the file, as after a crash."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return self.pid <= 0


def read_local_api(file: Path) -> LocalApi | None:
    """None when no daemon has written it, or it is another user's."""
    try:
        document = json.loads(file.read_bytes())
        endpoint, authority = document["endpoint"], document["authority"]
        pid = document.get("pid", 0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(endpoint, str) or not isinstance(authority, str | None):
        return None
    return LocalApi(endpoint, authority, pid if type(pid) is int and 0 < pid < 2**31 else 0)


def write_local_api(file: Path, api: LocalApi) -> None:
    """Replace the file. Raises OSError."""
    make_private_dir(file.parent)
    write_atomic(file, json.dumps(asdict(api)).encode(), mode=0o600)


def remove_local_api(file: Path, pid: int) -> None:
    """Delete the file of a process that stops, unless another daemon has replaced it.

    With HTTPS it stays: `skulkctl` must not send a token to that port in clear text instead.
    Raises OSError.
    """
    api = read_local_api(file)
    if api is not None and api.pid == pid and not api.is_https:
        remove_durably(file)
