"""The live overview: the timeline's feed, with the nodes' readings beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from skulkctl.daemon.members import Members, from_view
from skulkctl.daemon.state import ClusterState
from skulkctl.errors import RouteMissing
from skulkctl.nodes.rows import NodeItem, node_items, with_lost
from skulkctl.tui.feed import Frame, LiveFeed
from skulkctl.tui.lines import line
from skulkctl.tui.timeline_app import TimelineApp
from skulkctl.tui.timeline_screen import TimelineScreen
from skulkctl.tui.top_page import top_items, top_page
from skulkctl.tui.widgets import LinesView


class TopFeed(LiveFeed):
    """Also asks for the state, every time."""

    nodes: Sequence[NodeItem] = ()
    state = ClusterState({})

    def poll(self) -> Frame:
        self.state = self.daemon.state()
        try:
            members = from_view(self.daemon.cluster())
        except RouteMissing:
            members = Members()
        self.nodes = with_lost(node_items(self.state, members), members.lost)
        return super().poll()


class TopScreen(Screen[None]):
    """Nodes and runners; `t` opens the timeline of what is wrong."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t,enter", "timeline", "timeline", id="top.timeline"),
        Binding("q", "app.quit", "quit", id="top.quit"),
    ]

    def compose(self) -> ComposeResult:
        yield LinesView(id="lines")

    def on_mount(self) -> None:
        self.query_one(LinesView).focus()
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def on_screen_resume(self) -> None:
        self.draw()

    def draw(self) -> None:
        app = cast("TopApp", self.app)
        if not self.is_attached:
            return
        view, shot = self.query_one(LinesView), app.shot
        if shot is None:
            view.show([line((f" top  {app.waiting_for}", "muted"))])
            return
        feed = app.setup.feed
        nodes = feed.nodes if isinstance(feed, TopFeed) else ()
        state = feed.state if isinstance(feed, TopFeed) else ClusterState({})
        items = top_items(shot, nodes, state)
        view.show(top_page(shot, app.view, items, self.size.width, self.size.height))

    def action_timeline(self) -> None:
        self.app.push_screen(BackScreen())


class BackScreen(TimelineScreen):
    """The timeline, from which `q` leads back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "back", id="timeline.leave"),
    ]

    def action_leave(self) -> None:
        self.dismiss()


class TopApp(TimelineApp):
    """Everything the timeline can do, with another first screen."""

    TITLE = "skulkctl top"

    def get_default_screen(self) -> TopScreen:  # type: ignore[override]
        return TopScreen()
