"""The cluster secret: from the settings, else from a file that the first start creates.

Must not know who checks it. Nothing here prints it.
"""

import os
import secrets
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path

from skulkd.settings.files import create_atomic, make_private_dir
from skulkd.settings.load import Settings
from skulkd.settings.paths import Paths
from skulkd.settings.problems import SettingsError
from skulkd.settings.sources import Origin
from skulkd.wire.config import check_secret

_VARIABLE = "SKULK_CLUSTER_SECRET"
_READ_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ClusterSecret:
    """The secret, who decided it, and what the operator should be told about it."""

    value: str = field(repr=False)
    origin: Origin
    warnings: tuple[str, ...] = ()
    created: bool = False
    """Whether this start made it."""


def cluster_secret(paths: Paths, settings: Settings) -> ClusterSecret:
    """The secret of this node; created on first use. Daemons that start at once agree on one.

    Raises SettingsError when the file cannot be read, written, or used.
    """
    found = read_cluster_secret(paths, settings)
    if found is not None:
        return found
    file = paths.secret_file
    try:
        make_private_dir(file.parent)
        create_atomic(file, f"{secrets.token_urlsafe(32)}\n".encode(), mode=0o600)
    except OSError as error:
        raise SettingsError.single(
            f"the cluster secret cannot be created here: {error.strerror}; "
            f"set {_VARIABLE} to a secret of your own, or SKULK_HOME to a directory for all files",
            source=file,
        ) from error
    # Read back, because another daemon may have been first.
    return replace(_from_file(file), created=True)


def read_cluster_secret(paths: Paths, settings: Settings) -> ClusterSecret | None:
    """The secret if there is one already; never creates it. Raises like `cluster_secret`."""
    configured = settings.config.cluster.secret
    if configured is not None:
        return ClusterSecret(configured, settings.origins["cluster.secret"])
    return _from_file(paths.secret_file) if _exists(paths.secret_file) else None


def _exists(file: Path) -> bool:
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(file, error) from error
    return True


def _from_file(file: Path) -> ClusterSecret:
    try:
        with file.open("rb") as stream:
            mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
            content = stream.read(_READ_BYTES)
    except OSError as error:
        raise _unreadable(file, error) from error
    advice = f"delete the file to get a new secret, or set {_VARIABLE}"
    value = content.decode("ascii", "replace").strip()
    if not value:
        raise SettingsError.single(f"the cluster secret is empty; {advice}", source=file)
    try:
        check_secret(value)
    except ValueError as error:
        message = f"the cluster secret {error}; {advice}"
        raise SettingsError.single(message, source=file) from None
    warnings: tuple[str, ...] = ()
    if mode & 0o077:
        warnings = (f"{file} can be read by others (mode {mode:04o}); run: chmod 600 {file}",)
    return ClusterSecret(value, Origin("file", str(file)), warnings)


def _unreadable(file: Path, error: OSError) -> SettingsError:
    message = f"the cluster secret cannot be read: {error.strerror}; or set {_VARIABLE}"
    return SettingsError.single(message, source=file)
