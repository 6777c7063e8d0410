"""The application: six modes over one feed, with one theme and one command palette.

It polls, keeps the newest frame and what was seen before it, and tells the page that is shown.
What a page shows is decided by pure functions; keys are on the pages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.timer import Timer

from skulkctl.errors import CliError
from skulkctl.output.units import age_text, time_text
from skulkctl.timeline.frames import EVERYTHING, Part
from skulkctl.ui.cluster_screen import ClusterScreen
from skulkctl.ui.dialogs import ChoiceScreen
from skulkctl.ui.events_screen import EventsScreen
from skulkctl.ui.feed import Feed, Pacer, ReplayFeed
from skulkctl.ui.garbage import QuietCollector
from skulkctl.ui.history import History
from skulkctl.ui.instances_screen import InstancesScreen
from skulkctl.ui.notices import changes
from skulkctl.ui.page import Page
from skulkctl.ui.palette import SkulkCommands, entries
from skulkctl.ui.snapshot import Snapshot, View
from skulkctl.ui.storage_screen import StorageScreen
from skulkctl.ui.theme import DEFAULT, THEMES, Palette
from skulkctl.ui.timeline_screen import TimelineScreen
from skulkctl.ui.traces_screen import TracesScreen
from skulkctl.verdict import Limits

if TYPE_CHECKING:
    from skulkctl.timeline.frames import Frame
    from skulkctl.timeline.recordings import Recorder
    from skulkctl.ui.actions import Actions, Reader
    from skulkd.wire.timeline import Timeline

T = TypeVar("T")

GONE_S = 120.0
"""How long a swap waits for the old model to be unloaded."""

PAGE_DELAY_S = 0.01
"""How long nothing is painted while pages change, so that no half page is seen."""

PAGES: dict[str, type[Page]] = {
    "cluster": ClusterScreen,
    "instances": InstancesScreen,
    "timeline": TimelineScreen,
    "storage": StorageScreen,
    "traces": TracesScreen,
    "events": EventsScreen,
}


@dataclass(frozen=True)
class Setup:
    """What the command line decided."""

    feed: Feed
    actions: Actions | None = None
    reader: Reader | None = None
    recorder: Recorder | None = None
    context: str = ""
    mode: str = "cluster"
    view: View = field(default_factory=View)
    limits: Limits = field(default_factory=Limits)
    every_s: float = 2.0
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic


class SkulkApp(App[int]):
    """Pages over one feed."""

    TITLE = "skulkctl"
    CSS_PATH = "app.tcss"
    MODES: ClassVar[dict[str, Any]] = dict(PAGES)
    COMMANDS: ClassVar[set[Any]] = {*App.COMMANDS, SkulkCommands}
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"mode('{mode}')", mode, show=False, id=f"app.{mode}")
            for number, mode in enumerate(PAGES, start=1)
        ),
        Binding("question_mark", "help", "help", id="app.help"),
        Binding("colon", "command_palette", "palette", show=False, id="app.palette"),
        Binding("space", "pause", "pause", show=False, id="app.pause"),
        Binding("ctrl+r", "refresh", "refresh now", show=False, id="app.refresh"),
        Binding("q", "quit", "quit", id="app.quit"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True, id="app.interrupt"),
    ]

    def __init__(self, setup: Setup) -> None:
        # Textual reads it from the class or the instance; the command line decides it here.
        self.DEFAULT_MODE = setup.mode  # type: ignore[misc]
        super().__init__()
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = DEFAULT
        self.setup = setup
        self.view = replace(setup.view, offline=not setup.feed.live, plain=self.no_color)
        self.history = History()
        self.captured: set[str] = set()
        """Instances of which there is evidence."""
        self.snapshot: Snapshot | None = None
        self._pacer = Pacer(setup.every_s)
        self._previous: Timeline | None = None
        self._frame: Frame | None = None
        self._received = setup.clock()
        self._trouble = ""
        self._timer: Timer | None = None
        self._snapshot_key: tuple[object, ...] = ()
        self._palette: tuple[str, Palette] | None = None
        self.animation_level = "none"
        self._collector = QuietCollector(setup.clock())

    def on_mount(self) -> None:
        self._collector.start()
        self.set_interval(1.0, self._every_second)
        self._ask()

    async def on_unmount(self) -> None:
        self._collector.stop()
        await self.setup.feed.close()

    def _every_second(self) -> None:
        """The clock goes on; everything else is drawn when there is something new."""
        before, self.snapshot = self.snapshot, self._take_snapshot()
        if self.page is not None and self.setup.feed.live:
            self.page.redraw(only_bars=before is self.snapshot)
        self._collector.collect(self.setup.clock())

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.InputEvent):
            self._collector.used(self.setup.clock())
        await super().on_event(event)

    @property
    def palette(self) -> Palette:
        """The colours of the present theme."""
        if self._palette is None or self._palette[0] != self.theme:
            self._palette = self.theme, Palette(self.theme_variables)
        return self._palette[1]

    @property
    def page(self) -> Page | None:
        """The page that is shown, also under a dialog."""
        pages = (screen for screen in reversed(self.screen_stack) if isinstance(screen, Page))
        return next(pages, None)

    @property
    def may_change(self) -> bool:
        """Whether the pages offer keys that change the cluster."""
        return self.setup.actions is not None and not self.view.read_only

    @property
    def waiting_for(self) -> str:
        """What is shown before the first answer."""
        return self._trouble or "waiting for the daemon"

    @property
    def is_in_trouble(self) -> bool:
        """The last poll failed; before the first answer nothing is wrong yet."""
        return bool(self._trouble)

    def delay_update(self, delay: float = 0.05) -> None:
        """Textual paints nothing for so long after a page was changed; pages are quicker here."""
        super().delay_update(min(delay, PAGE_DELAY_S))

    def change(self, **changed: Any) -> None:
        """Another view of the same data."""
        self.view = replace(self.view, **changed)
        self.redraw()

    def redraw(self) -> None:
        """Show the newest data; the age of it grows by itself."""
        self.snapshot = self._take_snapshot()
        if self.page is not None:
            self.page.redraw()

    def _take_snapshot(self) -> Snapshot | None:
        """The same object as before while nothing changed: a verdict is computed once."""
        frame, feed = self._frame, self.setup.feed
        if frame is None:
            return None
        age_s = self.setup.clock() - self._received if feed.live else 0.0
        if self.view.paused_at or age_s < self._pacer.usual_s + 1:
            age_s = 0.0
        replay = f"REPLAY {feed.position}" if isinstance(feed, ReplayFeed) else ""
        key = (id(frame), id(self._previous), age_s, self._trouble, replay)
        if self.snapshot is None or key != self._snapshot_key:
            self._snapshot_key = key
            return Snapshot(
                frame.timeline, self._previous, frame.names, self.setup.limits, self.setup.context,
                age_s, self._pacer.usual_s, self._trouble, replay, frame.cluster,
            )  # fmt: skip
        return self.snapshot

    # Asking

    def _ask(self) -> None:
        self.run_worker(self._poll(), exclusive=True, group="poll")

    async def _poll(self) -> None:
        began = self.setup.clock()
        try:
            frame = await self.setup.feed.poll(self._wanted())
        except CliError as error:
            self._failed("; ".join(error.why) or error.what)
        else:
            self._received_frame(frame, self.setup.clock() - began)

    def _wanted(self) -> frozenset[Part]:
        """What the page that is shown is drawn from; a recording has everything."""
        if self.page is None or self.setup.recorder is not None:
            return EVERYTHING
        return self.page.PARTS

    def _received_frame(self, frame: Frame, took_s: float) -> None:
        delay_s = self._pacer.answered(took_s)
        self._trouble = ""
        before = self.snapshot
        if not self.view.paused_at or self._frame is None:
            if self._frame is not None and self._frame.timeline is not frame.timeline:
                self._previous = self._frame.timeline
            self._frame, self._received = frame, self.setup.clock()
        if isinstance(self.setup.feed, ReplayFeed):
            earlier = self.setup.feed.before
            self._previous = None if earlier is None else earlier.timeline
        if self.setup.recorder is not None:
            self.setup.recorder.add(frame)
        self.redraw()
        if self.snapshot is not None and self.setup.feed.live:
            self.history.add(self.snapshot)
            for severity, title, text in changes(before, self.snapshot):
                self.notify(text, title=title, severity=severity, markup=False)
        if self.setup.feed.live:
            self._ask_after(delay_s)

    def _failed(self, why: str) -> None:
        delay_s = self._pacer.failed()
        self._trouble = f"no answer: {why}; next try in {age_text(delay_s)}"
        self.redraw()
        self._ask_after(delay_s)

    def _ask_after(self, delay_s: float) -> None:
        """One timer only: whoever asks in between puts the next question off."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(delay_s, self._ask)

    async def until_gone(self, instance_id: str) -> None:
        """Until the feed no longer shows this instance, or time is up."""
        ends = self.setup.clock() + GONE_S
        while self.setup.clock() < ends:
            cluster = self.snapshot.cluster if self.snapshot else None
            if cluster is None or instance_id not in cluster.state.instances:
                return
            await asyncio.sleep(self.setup.every_s)

    async def attempt(self, failed: str, action: Awaitable[T]) -> T | None:
        """The result of an action; None when it failed, which is shown."""
        try:
            return await action
        except CliError as error:
            why = "; ".join([error.what, *error.why])
            self.notify(why, title=failed, severity="error", timeout=10, markup=False)
            return None

    # Keys that mean the same on every page

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "mode" and parameters and not self.setup.feed.live:
            return parameters[0] == "timeline"
        return True

    def action_mode(self, mode: str) -> None:
        if self.check_action("mode", (mode,)) and mode != self.current_mode:
            self.switch_mode(mode)
            self.call_after_refresh(self._ask)

    def show_instance(self, instance_id: str) -> None:
        """The page of instances, on this one."""
        self.switch_mode("instances")
        self.call_after_refresh(self._select_instance, instance_id)

    def _select_instance(self, instance_id: str) -> None:
        if isinstance(self.page, InstancesScreen):
            self.page.select(instance_id)

    def show_events(self, node_id: str | None = None, filtered: str = "") -> None:
        """The events page, with the log of a node or a filter."""
        self.view = replace(self.view, log_node=node_id or self.view.log_node)
        self.switch_mode("events")
        page = self.page
        if page is not None and filtered:
            page.filter = filtered
        self.call_after_refresh(self.redraw)

    def action_help(self) -> None:
        if self.screen.query("HelpPanel"):
            self.action_hide_help_panel()
        else:
            self.action_show_help_panel()
        self.call_after_refresh(self.redraw)

    def action_command_palette(self) -> None:
        """Textual's palette has letters of its own; where there are none, a plain list."""
        if not self.view.ascii:
            super().action_command_palette()
            return
        runs = {command: run for command, _, run in entries(self)}

        def chosen(command: str | None) -> None:
            if command is not None:
                runs[command]()

        self.push_screen(ChoiceScreen("commands", list(runs)), chosen)

    def action_pause(self) -> None:
        paused = "" if self.view.paused_at else time_text(self.setup.now())[11:19] + "Z"
        self.change(paused_at=paused)

    def action_refresh(self) -> None:
        self._ask()

    def get_key_display(self, binding: Binding) -> str:
        shown = super().get_key_display(binding)
        return shown if not self.view.ascii or shown.isascii() else binding.key
