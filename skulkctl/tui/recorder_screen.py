"""The drill-down: the flight recorder of one runner beside what the other ranks did."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from skulkctl.tui.recorder_page import recorder_length, recorder_page
from skulkctl.tui.timeline_screen import FilterScreen
from skulkctl.tui.widgets import LinesView


class RecorderScreen(FilterScreen):
    """All entries of the selected rank; it follows the newest until somebody scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "clear filter, then back", id="recorder.back"),
        Binding("q", "leave", "back", id="recorder.leave"),
        Binding("slash", "filter", "filter entries", id="recorder.filter"),
        Binding("j,down", "scroll(1)", "down", id="recorder.down"),
        Binding("k,up", "scroll(-1)", "up", id="recorder.up"),
        Binding("pagedown,space", "scroll(15)", "page down", id="recorder.page_down"),
        Binding("pageup", "scroll(-15)", "page up", id="recorder.page_up"),
        Binding("g", "scroll(-9999)", "top", id="recorder.top"),
        Binding("G", "scroll(9999)", "end", id="recorder.end"),
        Binding("left_square_bracket", "rank(-1)", "previous rank", id="recorder.previous"),
        Binding("right_square_bracket", "rank(1)", "next rank", id="recorder.next"),
        Binding("m", "flip('other_ranks')", "other ranks", id="recorder.others"),
        Binding("a", "flip('attrs')", "attributes", id="recorder.attrs"),
        Binding("o", "flip('only_task')", "only this task", id="recorder.task"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._top: int | None = None
        """None: as far down as possible."""

    def _room(self) -> int:
        return max(1, self.size.height - 5)

    def _first(self) -> int:
        shot, chosen = self.timeline.shot, self.timeline.chosen
        if shot is None or chosen is None:
            return 0
        last = max(0, recorder_length(shot, self.timeline.view, chosen[1]) - self._room())
        return last if self._top is None else min(self._top, last)

    def draw(self) -> None:
        shot, chosen = self.timeline.shot, self.timeline.chosen
        if not self.is_attached or shot is None or chosen is None:
            return
        group, rank = chosen
        columns, rows = self.size.width, self.size.height
        page = recorder_page(shot, self.timeline.view, group, rank, columns, rows, self._first())
        self.query_one(LinesView).show(page)

    def action_back(self) -> None:
        if not self.clear_filter():
            self.action_leave()

    def action_leave(self) -> None:
        self.timeline.view = self.timeline.view.without_filter()
        self.dismiss()

    def action_scroll(self, by: int) -> None:
        self._top = max(0, self._first() + by)
        if by > 0 and self._top > self._first():
            self._top = None
        self.draw()

    def action_rank(self, by: int) -> None:
        if self.timeline.chosen is None:
            return
        group, rank = self.timeline.chosen
        chosen = group.ranks[(group.ranks.index(rank) + by) % len(group.ranks)]
        self._top = None
        self.timeline.change(instance=group.instance_id, runner=chosen.runner_id)

    def action_flip(self, what: str) -> None:
        self.timeline.change(**{what: not getattr(self.timeline.view, what)})
