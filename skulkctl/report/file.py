"""Writes a report: private like a bundle, never over another file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skulkctl.errors import CliError, UsageMistake
from skulkctl.report.page import report
from skulkctl.timeline.recordings import frame_in
from skulkctl.ui.snapshot import Snapshot


def check_free(path: Path) -> None:
    """Before anything is captured. Raises CliError when the page could not be written there."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageMistake(f"--report {path}: the page is HTML, so its name must end in .html")
    if path.exists():
        raise CliError(f"{path} already exists", hints=["use another file:  --report FILE.html"])


def write_report(
    path: Path, members: Mapping[str, bytes], about: Mapping[str, Any], bundle: Path
) -> None:
    """The page of a bundle's files. Raises CliError."""
    check_free(path)
    frame = frame_in(members, bundle)
    if frame is None:
        raise CliError(
            f"{bundle} has no timeline, so there is nothing to report on",
            "it is the capture of one node",
            hints=["capture an instance:  skulkctl capture INSTANCE --report FILE.html"],
        )
    text = report(Snapshot(frame.timeline, names=frame.names), members, about)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"cannot write {path}", str(error.strerror)) from error
