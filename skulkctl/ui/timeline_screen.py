"""The timeline: verdict, lanes with a crosshair, and the flight recorder of the selected rank."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import DataTable

from skulkctl.timeline.frames import Part
from skulkctl.ui.alphabet import legend
from skulkctl.ui.feed import ReplayFeed
from skulkctl.ui.gantt import Gantt, gantt
from skulkctl.ui.lines import line
from skulkctl.ui.page import Page
from skulkctl.ui.recorder import HEADERS, Recorder, about_rank, recorder
from skulkctl.ui.snapshot import SPANS_S
from skulkctl.ui.timeline_page import (
    filtered,
    instance_text,
    next_difference,
    nothing,
    verdict_lines,
)
from skulkctl.ui.widgets import LinesView, Rows, set_title

if TYPE_CHECKING:
    from skulkctl.ui.palette import PaletteEntry
    from skulkctl.ui.snapshot import Snapshot
    from skulkctl.verdict.ranks import Group, Rank

LEAST_RECORDER = 5
"""Rows of the recorder that the lanes leave."""


class Lanes(LinesView, can_focus=True):
    """The lanes. A click sets the crosshair and selects the rank; wheel and drag zoom and pan."""

    def __init__(self) -> None:
        super().__init__(id="lanes")
        self.chart: Gantt | None = None

    def draw(self, chart: Gantt, title: str) -> None:
        self.chart = chart
        head, *rest = chart.lines
        self.show([line((f" {title}", "strong")), head, *rest] if title else chart.lines)

    def on_click(self, event: events.Click) -> None:
        chart, page = self.chart, self.screen
        if chart is None or not isinstance(page, TimelineScreen):
            return
        at_s, rank = chart.time_at(event.x), chart.ranks_at.get(event.y - 1)
        changed: dict[str, Any] = {} if at_s is None else {"cross_s": at_s}
        if rank is not None:
            changed |= {"instance": rank.instance_id, "runner": rank.runner_id}
        self.skulk.change(**changed)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, zoom=-1, pan=1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, zoom=1, pan=-1)

    def on_mouse_scroll_left(self, event: events.MouseScrollLeft) -> None:
        self._wheel(event, zoom=0, pan=1)

    def on_mouse_scroll_right(self, event: events.MouseScrollRight) -> None:
        self._wheel(event, zoom=0, pan=-1)

    def _wheel(self, event: events.MouseEvent, zoom: int, pan: int) -> None:
        """The wheel zooms; sideways, or with shift, it pans."""
        event.stop()
        if not isinstance(self.screen, TimelineScreen):
            return
        if event.shift or not zoom:
            self.screen.action_pan(pan)
        else:
            self.screen.action_zoom(zoom)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Dragging pans the lanes."""
        if self.chart is not None and event.button and event.delta_x:
            moved_s = event.delta_x * self.chart.window.cell_s
            self.skulk.change(pan_s=max(0.0, self.skulk.view.pan_s + moved_s))


class TimelineScreen(Page):
    """Lanes per rank, the verdict, and the recorder of the selected rank."""

    FILTER = "filter: text !not /regex/ node:NAME phase:NAME"
    PARTS = frozenset({Part.TIMELINE})
    HELP = """
    # Timeline

    What every rank of an instance does, and since when. The verdict at the top names the problem,
    the rank that causes it, and a next step. Capture before you cancel: a cancel changes the state
    of the ranks. `L` explains the letters and signs.
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "recorder", "recorder", id="timeline.recorder"),
        Binding("c", "capture", "capture", id="timeline.capture"),
        Binding("x", "cancel", "cancel", id="timeline.cancel"),
        Binding("r", "restart", "restart", id="timeline.restart"),
        Binding("n", "difference", "next difference", id="timeline.difference"),
        Binding("plus,equals_sign", "zoom(-1)", "zoom in", show=False, id="timeline.in"),
        Binding("minus", "zoom(1)", "zoom out", show=False, id="timeline.out"),
        Binding("left", "cross(-1)", "earlier", show=False, id="timeline.earlier"),
        Binding("right", "cross(1)", "later", show=False, id="timeline.later"),
        Binding("shift+left,H", "pan(1)", "pan back", show=False, id="timeline.back"),
        Binding("shift+right", "pan(-1)", "pan forward", show=False, id="timeline.forward"),
        Binding("f", "follow", "follow", show=False, id="timeline.follow"),
        Binding("j,down", "move(1)", "next rank", show=False, id="timeline.down"),
        Binding("k,up", "move(-1)", "previous rank", show=False, id="timeline.up"),
        Binding("tab", "instance(1)", "next instance", show=False, id="timeline.next"),
        Binding("exclamation_mark", "problems", "only problems", show=False, id="timeline.only"),
        Binding("o", "task", "only this task", show=False, id="timeline.task"),
        Binding("y", "copy", "copy verdict", show=False, id="timeline.copy"),
        Binding("v", "raw", "raw JSON", show=False, id="timeline.raw"),
        Binding("l", "logs", "log lines", show=False, id="timeline.logs"),
        Binding("L", "legend", "letters and signs", show=False, id="timeline.legend"),
        Binding("comma", "step(-1)", "earlier frame", id="timeline.step_back"),
        Binding("full_stop", "step(1)", "later frame", id="timeline.step_on"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._recorder: tuple[tuple[Any, ...], Recorder] | None = None
        self._chart: tuple[Snapshot, tuple[Any, ...], tuple[Gantt, str]] | None = None
        self._filled: tuple[Recorder, range] | None = None
        """The rows of a recorder that are in the table."""

    def body(self) -> Iterator[Widget]:
        yield LinesView(id="verdict")
        yield Lanes()
        yield Rows(id="recorder")

    # Drawing

    def draw(self, snapshot: Snapshot) -> None:
        view, columns = self.skulk.view, self.columns
        verdict = verdict_lines(snapshot, view, columns, keys=True)
        self.query_one("#verdict", LinesView).show(verdict)
        lanes, chosen = self.query_one(Lanes), self.chosen
        self.query_one(Rows).display = chosen is not None
        if chosen is None:
            lanes.chart = None
            lanes.show([nothing(view)])
            return
        group, rank = chosen
        rows = max(4, self.rows - len(verdict) - LEAST_RECORDER - 4)
        chart, hidden = self._chart_of(snapshot, group, rows)
        title = instance_text(snapshot, view, group, columns)
        filter_text = f"   /{self.filter}  {hidden}, esc clears" if hidden else ""
        facts = f"{title}   {snapshot.skew_text}{filter_text}"
        lanes.draw(chart, facts)
        self._draw_recorder(snapshot, group, rank)
        if self.focused is None:
            lanes.focus()

    def _chart_of(self, snapshot: Snapshot, group: Group, rows: int) -> tuple[Gantt, str]:
        """The lanes and how many are hidden; a page that is shown again has not changed."""
        view = self.skulk.view
        key = (view, self._in_recorder, self.filter, self.columns, rows)
        known = self._chart
        if known is None or known[0] is not snapshot or known[1] != key:
            shown, hidden = (group, "") if self._in_recorder else filtered(group, self.filter)
            drawn = gantt(snapshot, view, shown, self.columns, rows)
            known = self._chart = snapshot, key, (drawn, hidden)
        return known[2]

    @property
    def _in_recorder(self) -> bool:
        return self.has_class("recorder")

    def _draw_recorder(self, snapshot: Snapshot, group: Group, rank: Rank) -> None:
        """All entries for whoever reads them; beside the lanes only those that are seen."""
        table, view = self.query_one(Rows), self.skulk.view
        recorder = self._recorder_of(snapshot, group, rank)
        set_title(table, about_rank(rank, recorder.count))
        cross_s = view.cross_s if view.cross_s is not None else snapshot.now_s
        under, numbers = recorder.at(cross_s), self._rows_to_fill(recorder, cross_s)
        keys = [f"{number} {recorder.moment(number)}" for number in numbers]
        follows = not table.has_focus and under in numbers
        table.fill(
            HEADERS,
            [(key, recorder.row(number)) for key, number in zip(keys, numbers, strict=True)],
            keys[numbers.index(under)] if follows else None,
            recorder.widths,
        )

    def _rows_to_fill(self, recorder: Recorder, cross_s: float) -> range:
        """The same rows as before while the crosshair stays among them: moving there is cheap."""
        table = self.query_one(Rows)
        if table.has_focus or table.mouse_hover:
            return range(len(recorder))
        rows = max(LEAST_RECORDER, table.size.height - 1)
        known = self._filled
        if known is None or known[0] is not recorder or recorder.at(cross_s) not in known[1]:
            known = recorder, recorder.part(cross_s, rows)
        if len(known[1]) < min(rows, len(recorder)):
            known = recorder, recorder.part(cross_s, rows)
        self._filled = known
        return known[1]

    def _recorder_of(self, snapshot: Snapshot, group: Group, rank: Rank) -> Recorder:
        """Made once for each snapshot and rank: the crosshair moves often, entries do not."""
        view, typed = self.skulk.view, self.filter if self._in_recorder else ""
        key = (rank.runner_id, typed, view.only_task, self.columns)
        known = self._recorder
        if known is None or known[1].snapshot is not snapshot or known[0] != key:
            found = recorder(snapshot, view, group, rank, typed, self.columns)
            known = self._recorder = key, found
        return known[1]

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Whoever turns to the recorder finds all of it."""
        if isinstance(event.widget, Rows):
            self.redraw()

    def on_enter(self, event: events.Enter) -> None:
        """The same for the mouse, whose wheel scrolls without the focus."""
        if isinstance(event.node, Rows):
            self.redraw()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """The crosshair follows the cursor while somebody moves through the recorder."""
        key = self.query_one(Rows).selected_key
        if event.data_table.has_focus and key is not None:
            self.skulk.change(cross_s=float(key.split()[1]))

    def on_data_table_row_selected(self) -> None:
        self.action_recorder()

    # What keys act on

    @property
    def chosen(self) -> tuple[Group, Rank] | None:
        """The instance and rank that keys act on."""
        snapshot, view = self.skulk.snapshot, self.skulk.view
        group = None if snapshot is None else view.group_of(snapshot)
        if snapshot is None or group is None:
            return None
        return group, view.rank_of(group, snapshot)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("cancel", "restart"):
            return self.skulk.may_change
        if action in ("capture", "logs"):
            return self.skulk.setup.actions is not None
        if action == "step":
            return not self.skulk.setup.feed.live
        return super().check_action(action, parameters)

    def focus_body(self) -> None:
        (self.query_one(Rows) if self._in_recorder else self.query_one(Lanes)).focus()

    # Moving

    def action_recorder(self) -> None:
        """The recorder alone, over the whole page; again: back to the lanes."""
        self.toggle_class("recorder")
        self.focus_body()
        self.call_after_refresh(self.redraw)

    def leave(self) -> None:
        if self._in_recorder:
            self.action_recorder()
        else:
            self.query_one(Lanes).focus()
            self.skulk.change(pan_s=0.0, cross_s=None)

    def action_follow(self) -> None:
        self.skulk.change(pan_s=0.0, cross_s=None)

    def action_move(self, by: int) -> None:
        if self.chosen is None:
            return
        group, rank = self.chosen
        position = min(max(0, group.ranks.index(rank) + by), len(group.ranks) - 1)
        chosen = group.ranks[position]
        self.skulk.change(instance=group.instance_id, runner=chosen.runner_id)

    def action_instance(self, by: int) -> None:
        snapshot, chosen = self.skulk.snapshot, self.chosen
        if snapshot is None or chosen is None:
            return
        groups = self.skulk.view.groups_of(snapshot)
        position = [group.instance_id for group in groups].index(chosen[0].instance_id)
        after = groups[(position + by) % len(groups)]
        self.skulk.change(instance=after.instance_id, runner=None)

    def action_zoom(self, by: int) -> None:
        view = self.skulk.view
        now = min(SPANS_S, key=lambda span_s: abs(span_s - view.span_s))
        position = min(max(0, SPANS_S.index(now) + by), len(SPANS_S) - 1)
        self.skulk.change(span_s=SPANS_S[position])

    def action_pan(self, by: int) -> None:
        view = self.skulk.view
        self.skulk.change(pan_s=max(0.0, view.pan_s + by * view.span_s / 4))

    def action_cross(self, by: int) -> None:
        """One cell further; at the edge the lanes move along."""
        chart, snapshot, view = self.query_one(Lanes).chart, self.skulk.snapshot, self.skulk.view
        if chart is None or snapshot is None:
            return
        window = chart.window
        start_s = view.cross_s if view.cross_s is not None else window.end_s
        at_s = min(start_s + by * window.cell_s, snapshot.now_s - window.cell_s / 2)
        pan_s = view.pan_s
        if at_s < window.start_s:
            pan_s = snapshot.now_s - at_s - view.span_s * 3 / 4
        elif at_s > window.end_s:
            pan_s = max(0.0, snapshot.now_s - at_s - view.span_s / 4)
        self.skulk.change(cross_s=at_s, pan_s=pan_s)

    def action_difference(self) -> None:
        if self.skulk.snapshot is not None:
            view, text = next_difference(self.skulk.snapshot, self.skulk.view)
            self.skulk.change(pan_s=view.pan_s, cross_s=view.cross_s)
            self.notify(text, title="next difference", markup=False)

    def action_problems(self) -> None:
        self.skulk.change(only_problems=not self.skulk.view.only_problems)

    def action_task(self) -> None:
        self.skulk.change(only_task=not self.skulk.view.only_task)

    def action_step(self, by: int) -> None:
        feed = self.skulk.setup.feed
        if isinstance(feed, ReplayFeed):
            feed.step(by)
            self.skulk.action_refresh()

    # Reading more

    def action_legend(self) -> None:
        from skulkctl.ui.dialogs import TextScreen

        self.app.push_screen(TextScreen("letters and signs", legend()))

    def action_copy(self) -> None:
        snapshot, chosen = self.skulk.snapshot, self.chosen
        if snapshot is None or chosen is None:
            return
        finding = snapshot.finding(chosen[0])
        headline = f"{finding.state} {finding.rule or ''}".rstrip()
        lines = [headline, *finding.sentences, *finding.evidence, *finding.next]
        self.app.copy_to_clipboard("\n".join(lines))
        self.notify("verdict, evidence and next commands are in the clipboard")

    def action_raw(self) -> None:
        from skulkctl.ui.dialogs import TextScreen

        if self.chosen is None:
            return
        rank = self.chosen[1]
        document = {
            "runner": rank.runner.model_dump(mode="json", exclude_unset=True),
            "flightRecorder": [
                entry.model_dump(mode="json", exclude_unset=True) for entry in rank.entries
            ],
        }
        rows = json.dumps(document, indent=2, ensure_ascii=False).splitlines()
        self.app.push_screen(TextScreen(f"runner {rank.runner_id}", rows))

    def action_logs(self) -> None:
        from skulkctl.ui.changes import show_log

        if self.chosen is not None:
            show_log(self.skulk, self.chosen[1])

    # Evidence, then change

    def action_capture(self) -> None:
        from skulkctl.ui.changes import capture

        if self.chosen is not None:
            capture(self.skulk, *self.chosen)

    def action_cancel(self) -> None:
        from skulkctl.ui.changes import cancel

        if self.chosen is not None:
            cancel(self.skulk, *self.chosen)

    def action_restart(self) -> None:
        from skulkctl.ui.changes import restart

        if self.chosen is not None:
            restart(self.skulk, *self.chosen)

    def palette_entries(self) -> Iterator[PaletteEntry]:
        chosen = self.chosen
        if chosen is not None and self.skulk.setup.actions is not None:
            group, rank = chosen
            yield f"skulkctl capture {group.short}/{rank.rank}", "evidence", self.action_capture
            yield f"skulkctl logs {rank.node} --runner {rank.runner_id}", "log", self.action_logs
            if group.task_id and self.skulk.may_change:
                yield f"skulkctl cancel {group.task_id}", "ends the request", self.action_cancel
        yield from self._further_steps()
        yield "skulkctl timeline -o json", "raw data of this rank", self.action_raw
        yield "skulkctl help timeline", "letters and signs", self.action_legend

    def _further_steps(self) -> Iterator[PaletteEntry]:
        """What the verdict advises and no key does; it is copied, to be run in a shell."""
        snapshot, chosen = self.skulk.snapshot, self.chosen
        if snapshot is None or chosen is None:
            return
        for command in snapshot.finding(chosen[0]).next:
            program, verb = command.split()[:2]
            if program == "skulkctl" and verb not in ("capture", "cancel", "logs"):
                yield command, "copies the command", partial(self._copy_command, command)

    def _copy_command(self, command: str) -> None:
        self.app.copy_to_clipboard(command)
        self.notify(command, title="in the clipboard", markup=False)
