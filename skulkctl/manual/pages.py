"""Where the man pages of this installation are: in its prefix, or in the checkout it runs from."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

DISTRIBUTION = "skulk-toolkit"
_WITHIN_PREFIX = Path("share") / "man" / "man1"


def page_name(words: Sequence[str]) -> str:
    """The file of a command: `skulkctl-config-set.1`; `skulkd` and `skulkctl` name programs."""
    programs = ("skulkctl", "skulkd")
    path = words if words and words[0] in programs else ("skulkctl", *words)
    return f"{'-'.join(path)}.1"


def find_page(name: str) -> Path | None:
    """The page, or None when there is no such page or pages were not installed."""
    return next((path for path in _candidates(name) if path.is_file()), None)


def _candidates(name: str) -> Iterator[Path]:
    # A checkout first: its pages belong to the code that runs.
    yield Path(__file__).parents[2] / "man" / name
    yield Path(sys.prefix) / _WITHIN_PREFIX / name
    yield from _recorded(name)


def _recorded(name: str) -> Iterator[Path]:
    """Where the installer says that it put the page, such as below ~/.local."""
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == name:
            yield Path(str(file.locate())).resolve()
