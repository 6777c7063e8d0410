"""The command palette: what can be done on the page that is shown, spelled like commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

if TYPE_CHECKING:
    from skulkctl.ui.app import SkulkApp

PaletteEntry = tuple[str, str, Callable[[], object]]
"""A command as it is typed in a shell, what it does, and how to do it here."""

_MODES = {
    "cluster": "skulkctl status",
    "instances": "skulkctl instances",
    "timeline": "skulkctl timeline",
    "storage": "skulkctl storage --all-nodes",
    "traces": "skulkctl trace list",
    "events": "skulkctl events",
}


class SkulkCommands(Provider):
    """The pages, and what the present one can do."""

    async def discover(self) -> Hits:
        for command, about, run in entries(cast("SkulkApp", self.app)):
            yield DiscoveryHit(command, run, help=about)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command, about, run in entries(cast("SkulkApp", self.app)):
            score = matcher.match(f"{command} {about}")
            if score > 0:
                yield Hit(score, matcher.highlight(command), run, help=about)


def entries(app: SkulkApp) -> Iterator[PaletteEntry]:
    """Everything that the palette offers now."""
    if app.page is not None:
        yield from app.page.palette_entries()
    if app.setup.feed.live:
        for mode, command in _MODES.items():
            yield command, f"opens the page {mode}", partial(app.action_mode, mode)
