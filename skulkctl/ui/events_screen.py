"""Events of the cluster and the log of a node, live."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import RichLog

from skulkctl.errors import CliError
from skulkctl.output.terminal import harmless
from skulkctl.output.units import parse_time
from skulkctl.ui.events_page import (
    HEADERS,
    event_rows,
    found_in,
    key_of,
    log_matches,
    log_role,
    owner_of,
)
from skulkctl.ui.page import Page
from skulkctl.ui.widgets import Rows, set_title

if TYPE_CHECKING:
    from skulkctl.ui.snapshot import Snapshot
    from skulkd.wire.event_stream import EventLine
    from skulkd.wire.logs import LogLine

MOST_EVENTS = 1000
SINCE_S = 900.0
"""How far back the events go when the page opens."""


class EventsScreen(Page):
    """Events above, log lines below."""

    FILTER = "filter: text !not /regex/ kind:NAME level:WARN"
    EVERY_S = 3.0
    HELP = """
    # Events and logs

    What happened in the cluster, and what one node's daemon logs. The filter applies to both.
    Enter on an event opens the timeline of its instance at that moment, or the log of its node;
    `i` opens the instance.
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "jump", "timeline then", id="events.jump"),
        Binding("i", "instance", "instance", id="events.instance"),
        Binding("n", "node", "next node's log", id="events.node"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._events: deque[EventLine] = deque(maxlen=MOST_EVENTS)
        self._log: deque[LogLine] = deque(maxlen=MOST_EVENTS)
        self._cursor: int | None = None
        self._shown_log: tuple[str | None, str, int] | None = None
        self._log_node: str | None = None
        self._is_due = False

    def body(self) -> Iterator[Widget]:
        yield Rows(id="events")
        log = RichLog(id="log", max_lines=MOST_EVENTS, wrap=True, markup=False)
        yield log

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._follow()

    def on_screen_suspend(self) -> None:
        """Nobody looks: the stream is closed, and continued by the next visit."""
        super().on_screen_suspend()
        self.workers.cancel_group(self, "events")

    @work(group="events", exclusive=True)
    async def _follow(self) -> None:
        """Events as they come; a stream that broke is opened again after a pause."""
        reader = self.skulk.setup.reader
        if reader is None:
            return
        try:
            async for event in reader.events(self._since_s()):
                # A stream that is continued begins with the events of the same moment.
                newest = islice(reversed(self._events), 50)
                if all(key_of(event) != key_of(known) for known in newest):
                    self._events.append(event)
                    self._redraw_soon()
        except CliError as error:
            self.notify("; ".join([error.what, *error.why]), title="no events", markup=False)
            self.set_timer(self.skulk.setup.every_s * 5, self._reopen)

    def _reopen(self) -> None:
        if self.is_current:
            self._follow()

    def _since_s(self) -> float:
        """Where the events that are known end."""
        newest = parse_time(self._events[-1].at or "") if self._events else None
        if newest is not None:
            return newest.timestamp()
        return self.skulk.setup.now().timestamp() - SINCE_S

    def _redraw_soon(self) -> None:
        """A burst of events is drawn once."""
        if not self._is_due:
            self._is_due = True
            self.set_timer(0.2, self._redraw_now)

    def _redraw_now(self) -> None:
        self._is_due = False
        self.redraw()

    async def fetch(self) -> None:
        reader, node_id = self.skulk.setup.reader, self.skulk.view.log_node
        if reader is None:
            return
        if node_id != self._log_node:
            self._log.clear()
            self._cursor, self._log_node = None, node_id
        found = await self.skulk.attempt("no log", reader.node_log(node_id, self._cursor))
        if found is not None and node_id == self._log_node:
            self._cursor = found.cursor
            self._log.extend(found.lines)

    def draw(self, snapshot: Snapshot) -> None:
        if self.skulk.view.log_node != self._log_node:
            self.refetch()
        table = self.query_one(Rows)
        rows, count = event_rows(list(self._events), self.filter, snapshot.names, self.columns)
        at_end = table.cursor_row >= len(table.keys) - 1
        set_title(table, f"events · {count}")
        table.fill(HEADERS, rows, rows[-1][0] if rows and at_end else None)
        self._draw_log(snapshot)
        if self.focused is None:
            table.focus()

    def _draw_log(self, snapshot: Snapshot) -> None:
        log, node_id = self.query_one(RichLog), self._log_node
        name = snapshot.names.get(node_id, node_id) if node_id else "the node that answers"
        set_title(log, f"log of {name}")
        newest = (node_id, self.filter, len(self._log) + (self._cursor or 0))
        if newest == self._shown_log or not log.size.width:
            return
        self._shown_log = newest
        log.clear()
        for line in self._log:
            text = harmless(line.text)
            if log_matches(text, line.level, self.filter):
                role = log_role(line.level)
                head = f"{line.at[11:23]} {line.level:<8} " if line.at and line.level else ""
                shown = Text(f" {head}{text}", style=self.skulk.palette.style(role))
                log.write(shown, width=log.scrollable_content_region.width)

    @property
    def selected(self) -> EventLine | None:
        key = self.query_one(Rows).selected_key
        return next((one for one in self._events if key_of(one) == key), None)

    def on_data_table_row_selected(self) -> None:
        self.action_jump()

    def action_jump(self) -> None:
        """To the moment on the timeline of the event's instance, else to the log of its node."""
        event, app = self.selected, self.skulk
        if event is None:
            return
        instance = owner_of(event, self._instances_by_runner(), self._events)
        node_id = found_in(event, "node_id", "nodeId")
        moment = parse_time(event.at or "")
        if instance is not None:
            cross_s = None if moment is None else moment.timestamp()
            app.change(instance=instance, runner=None, cross_s=cross_s)
            app.action_mode("timeline")
        elif node_id is not None:
            app.change(log_node=node_id)

    def _instances_by_runner(self) -> dict[str, str]:
        snapshot = self.skulk.snapshot
        groups = snapshot.groups if snapshot else ()
        return {rank.runner_id: group.instance_id for group in groups for rank in group.ranks}

    def action_instance(self) -> None:
        """To the row of the event's instance."""
        event = self.selected
        instance = event and owner_of(event, self._instances_by_runner(), self._events)
        if instance:
            self.skulk.show_instance(instance)
        else:
            self.notify("this event is about no instance", severity="warning")

    def action_node(self) -> None:
        snapshot = self.skulk.snapshot
        nodes = snapshot.cluster.nodes if snapshot and snapshot.cluster else ()
        ids = [node["id"] for node in nodes]
        if ids:
            now = self.skulk.view.log_node
            position = ids.index(now) + 1 if now in ids else 0
            self.skulk.change(log_node=ids[position % len(ids)])
