"""Crash reports: an unexpected exception as a file that can be attached to an issue."""

from __future__ import annotations

import platform
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime

from skulkctl.errors import CliError


def report_crash(error: BaseException, environ: Mapping[str, str]) -> CliError:
    """Write the report to the cache directory; the error to show names the file.

    The command line is left out on purpose: it may hold data of the user.
    """
    from skulkd import __version__

    kind = f"{type(error).__name__}: {error}".splitlines()[0]
    text = "\n".join(
        [
            f"skulkctl {__version__}, Python {platform.python_version()}, {platform.platform()}",
            datetime.now(UTC).isoformat(timespec="seconds"),
            "",
            "".join(traceback.format_exception(error)),
        ]
    )
    try:
        where = f"the crash report is in {_write(text, environ)}"
    except Exception as problem:  # noqa: BLE001 (reporting must not hide the first error)
        where = f"the crash report could not be written: {problem}"
    return CliError(
        "skulkctl crashed; this is a bug", kind, where, hints=["print the traceback:  add -v"]
    )


def _write(text: str, environ: Mapping[str, str]) -> str:
    from skulkd.settings.files import make_private_dir, write_atomic
    from skulkd.settings.paths import find_paths

    folder = find_paths(environ).cache / "crashes"
    make_private_dir(folder)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    path = folder / f"skulkctl-{stamp}.txt"
    write_atomic(path, text.encode("utf-8", "replace"), mode=0o600)
    return str(path)
