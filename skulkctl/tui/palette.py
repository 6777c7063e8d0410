"""The command palette: entries are spelled like the command line, so that it teaches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

if TYPE_CHECKING:
    from skulkctl.tui.timeline_app import TimelineApp

Entry = tuple[str, str, Callable[[], None]]


class SkulkCommands(Provider):
    """What can be done with the placement that is shown."""

    async def discover(self) -> Hits:
        for words, about, run in self._entries():
            yield DiscoveryHit(words, run, help=about)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for words, about, run in self._entries():
            score = matcher.match(words)
            if score > 0:
                yield Hit(score, matcher.highlight(words), run, help=about)

    def _entries(self) -> Iterator[Entry]:
        app = cast("TimelineApp", self.app)
        yield from app.palette_entries()
