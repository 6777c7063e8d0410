"""The lanes of one placement, and the keys that move through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from skulkctl.tui.lines import line
from skulkctl.tui.page import next_difference, timeline_page
from skulkctl.tui.shots import SPANS_S
from skulkctl.tui.widgets import LinesView

if TYPE_CHECKING:
    from skulkctl.tui.timeline_app import TimelineApp


class FilterScreen(Screen[None]):
    """A screen with a filter line that opens at its bottom."""

    @property
    def timeline(self) -> TimelineApp:
        return cast("TimelineApp", self.app)

    def compose(self) -> ComposeResult:
        yield LinesView(id="lines")
        yield Input(placeholder="filter: text !not /regex/ node:NAME phase:NAME", id="filter")

    def on_mount(self) -> None:
        self.query_one(LinesView).focus()
        self.draw()

    def on_resize(self) -> None:
        self.draw()

    def on_screen_resume(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Show the newest data in the chosen view."""

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.add_class("open")
        box.value = self.timeline.view.filter
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if self.query_one("#filter").has_class("open"):
            self.timeline.change(filter=event.value.strip())

    def on_input_submitted(self) -> None:
        self.close_filter()

    def close_filter(self) -> None:
        self.query_one("#filter").remove_class("open")
        self.query_one(LinesView).focus()

    def clear_filter(self) -> bool:
        """Whether there was one to clear; the first escape does that."""
        box = self.query_one("#filter", Input)
        if box.has_class("open") or self.timeline.view.filter:
            box.value = ""
            self.close_filter()
            self.timeline.change(filter="")
            return True
        return False


class TimelineScreen(FilterScreen):
    """Lanes per rank, rulers, the verdict, and the newest entries of the selected rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "recorder of this rank", id="timeline.open"),
        Binding("slash", "filter", "filter ranks", id="timeline.filter"),
        Binding("escape", "back", "clear filter, pan and note", id="timeline.back"),
        Binding("q", "app.quit", "quit", id="timeline.quit"),
        Binding("j,down", "move(1)", "next rank", id="timeline.down"),
        Binding("k,up", "move(-1)", "previous rank", id="timeline.up"),
        Binding("g", "move(-999)", "first rank", id="timeline.first"),
        Binding("G", "move(999)", "last rank", id="timeline.last"),
        Binding("tab", "placement(1)", "next placement", id="timeline.next", priority=True),
        *(
            Binding(
                str(number), f"choose({number})", "placement", show=False, id=f"timeline.{number}"
            )
            for number in range(1, 10)
        ),
        Binding("plus,equals_sign", "zoom(-1)", "zoom in", id="timeline.in"),
        Binding("minus", "zoom(1)", "zoom out", id="timeline.out"),
        Binding("left", "pan(1)", "earlier", id="timeline.earlier"),
        Binding("right", "pan(-1)", "later", id="timeline.later"),
        Binding("n", "difference", "next difference", id="timeline.difference"),
        Binding("exclamation_mark", "problems", "only problems", id="timeline.problems"),
    ]

    def draw(self) -> None:
        if not self.is_attached:
            return
        view, shot = self.query_one(LinesView), self.timeline.shot
        columns, rows = self.size.width, self.size.height
        if shot is None:
            told = self.timeline.waiting_for
            view.show([line((f" timeline  {told}", "muted"))])
            return
        view.show(timeline_page(shot, self.timeline.view, columns, rows))

    def action_open(self) -> None:
        from skulkctl.tui.recorder_screen import RecorderScreen

        if self.timeline.chosen is not None:
            group, rank = self.timeline.chosen
            self.timeline.change(instance=group.instance_id, runner=rank.runner_id, filter="")
            self.app.push_screen(RecorderScreen())

    def action_back(self) -> None:
        if not self.clear_filter():
            self.timeline.change(pan_s=0.0)

    def action_move(self, by: int) -> None:
        if self.timeline.chosen is None:
            return
        group, rank = self.timeline.chosen
        position = min(max(0, group.ranks.index(rank) + by), len(group.ranks) - 1)
        chosen = group.ranks[position]
        self.timeline.change(instance=group.instance_id, runner=chosen.runner_id)

    def action_placement(self, by: int) -> None:
        shot, chosen = self.timeline.shot, self.timeline.chosen
        if shot is None or chosen is None:
            return
        groups = self.timeline.view.groups_of(shot)
        position = [group.instance_id for group in groups].index(chosen[0].instance_id)
        self._choose((position + by) % len(groups))

    def action_choose(self, number: int) -> None:
        self._choose(number - 1)

    def _choose(self, position: int) -> None:
        shot = self.timeline.shot
        groups = [] if shot is None else self.timeline.view.groups_of(shot)
        if position < len(groups):
            self.timeline.change(instance=groups[position].instance_id, runner=None)

    def action_zoom(self, by: int) -> None:
        now = min(SPANS_S, key=lambda span_s: abs(span_s - self.timeline.view.span_s))
        position = min(max(0, SPANS_S.index(now) + by), len(SPANS_S) - 1)
        self.timeline.change(span_s=SPANS_S[position])

    def action_pan(self, by: int) -> None:
        view = self.timeline.view
        self.timeline.change(pan_s=max(0.0, view.pan_s + by * view.span_s / 4))

    def action_difference(self) -> None:
        if self.timeline.shot is not None:
            view = next_difference(self.timeline.shot, self.timeline.view)
            self.timeline.change(pan_s=view.pan_s, note=view.note)

    def action_problems(self) -> None:
        self.timeline.change(only_problems=not self.timeline.view.only_problems)
