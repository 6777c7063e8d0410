"""The timeline application: polls its feed, keeps the newest shot, and carries out actions.

What is shown is decided by pure presenters; keys are on the screens.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import CommandPalette

from skulkctl.errors import CliError
from skulkctl.tui.alphabet import legend
from skulkctl.tui.dialogs import ConfirmScreen, TextScreen
from skulkctl.tui.feed import Feed, Frame, Pacer, ReplayFeed
from skulkctl.tui.palette import SkulkCommands
from skulkctl.tui.shots import Shot, View
from skulkctl.tui.timeline_screen import TimelineScreen
from skulkctl.units import age_text, time_text
from skulkctl.verdict import Limits
from skulkctl.verdict.ranks import Group, Rank
from skulkctl.views.read import Document, sequence, text

if TYPE_CHECKING:
    from skulkctl.recordings import Recorder
    from skulkctl.tui.actions import Actions

ABOUT = (
    "Where every rank of a placement is, and since when. The verdict at",
    "the top says what is wrong, who is at fault, and what to press.",
    "Capture before you cancel: a cancel hides where a rank was.",
    "",
)


@dataclass(frozen=True)
class Setup:
    """What the command line decided."""

    feed: Feed
    actions: Actions | None = None
    recorder: Recorder | None = None
    context: str = ""
    view: View = field(default_factory=View)
    limits: Limits = field(default_factory=Limits)
    every_s: float = 2.0
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic


class TimelineApp(App[int]):
    """Lanes, drill-down and dialogs over one feed."""

    TITLE = "skulkctl timeline"
    CSS = """
    Screen { background: $background; }
    #filter { dock: bottom; display: none; height: 1; border: none; padding: 0 1; }
    #filter.open { display: block; }
    CommandPalette SearchIcon { display: none; }
    CommandPalette #--input { border: none; }
    CommandPalette CommandList { border: none; }
    """
    COMMANDS: ClassVar[set[Any]] = {SkulkCommands}
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("colon", "command_palette", "palette", show=False, id="app.palette"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True, id="app.quit"),
        Binding("question_mark", "help", "help", id="app.help"),
        Binding("p", "pause", "pause", id="app.pause"),
        Binding("r", "refresh", "ask now", id="app.refresh"),
        Binding("C", "capture", "capture", id="app.capture"),
        Binding("w", "capture", "write bundle", id="app.bundle"),
        Binding("ctrl+x", "cancel", "cancel the task", id="app.cancel"),
        Binding("c", "copy", "copy", id="app.copy"),
        Binding("y", "raw", "raw JSON", id="app.raw"),
        Binding("l", "logs", "log lines", id="app.logs"),
        Binding("comma", "step(-1)", "earlier frame", id="app.earlier"),
        Binding("full_stop", "step(1)", "later frame", id="app.later"),
    ]

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.setup = setup
        self.view = replace(setup.view, offline=setup.actions is None)
        self._pacer = Pacer(setup.every_s)
        self._previous: Document | None = None
        self._frame: Frame | None = None
        self._received = setup.clock()
        self._trouble = ""
        self._captured: set[str] = set()
        self.animation_level = "none"

    def get_default_screen(self) -> TimelineScreen:
        return TimelineScreen()

    def on_mount(self) -> None:
        self._ask()
        if self.setup.feed.live:
            self.set_interval(1.0, self.redraw)

    # What there is to see

    @property
    def shot(self) -> Shot | None:
        frame, feed = self._frame, self.setup.feed
        if frame is None:
            return None
        age_s = self.setup.clock() - self._received if self.setup.feed.live else 0.0
        return Shot(
            frame.timeline,
            self._previous,
            frame.names,
            self.setup.limits,
            self.setup.context,
            0.0 if self.view.paused_at else age_s,
            self._pacer.usual_s,
            self._trouble,
            f"REPLAY {feed.position}" if isinstance(feed, ReplayFeed) else "",
        )

    @property
    def waiting_for(self) -> str:
        """What is said before the first answer."""
        return self._trouble or "asking the daemon"

    @property
    def chosen(self) -> tuple[Group, Rank] | None:
        """The placement and rank that keys act on."""
        shot = self.shot
        group = None if shot is None else self.view.group_of(shot)
        if shot is None or group is None:
            return None
        return group, self.view.rank_of(group, shot)

    def change(self, **changes: Any) -> None:
        """Another view of the same data."""
        self.view = replace(self.view, **{"note": "", **changes})
        self.redraw()

    def redraw(self) -> None:
        draw = getattr(self.screen, "draw", None)
        if draw is not None:
            draw()

    # Asking

    def _ask(self) -> None:
        self.run_worker(self._poll, thread=True, exclusive=True, group="poll", exit_on_error=True)

    def _poll(self) -> None:
        began = self.setup.clock()
        try:
            frame = self.setup.feed.poll()
        except CliError as error:
            why = "; ".join(error.why) or error.what
            self.call_from_thread(self._failed, why)
            return
        self.call_from_thread(self._took, frame, self.setup.clock() - began)

    def _took(self, frame: Frame, took_s: float) -> None:
        delay_s = self._pacer.answered(took_s)
        self._trouble = ""
        if not self.view.paused_at or self._frame is None:
            self._previous = None if self._frame is None else self._frame.timeline
            self._frame, self._received = frame, self.setup.clock()
        if isinstance(self.setup.feed, ReplayFeed):
            before = self.setup.feed.before()
            self._previous = None if before is None else before.timeline
        if self.setup.recorder is not None:
            self.setup.recorder.add(frame)
        self.redraw()
        if self.setup.feed.live:
            self.set_timer(delay_s, self._ask)

    def _failed(self, why: str) -> None:
        delay_s = self._pacer.failed()
        self._trouble = f"no answer: {why}; next try in {age_text(delay_s)}"
        self.redraw()
        self.set_timer(delay_s, self._ask)

    # Keys that mean the same on every screen

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        del parameters
        if action == "cancel":
            return not self.view.read_only and self.setup.actions is not None
        if action in ("capture", "logs"):
            return self.setup.actions is not None
        if action == "step":
            return not self.setup.feed.live
        return True

    def action_command_palette(self) -> None:
        # Its own words have letters that not every terminal has.
        self.push_screen(CommandPalette(id="--command-palette", placeholder="type a command"))

    def action_help(self) -> None:
        from skulkctl.tui.help_text import help_rows

        self.push_screen(TextScreen("help", [*ABOUT, *help_rows(self), "", *legend()]))

    def action_pause(self) -> None:
        paused = "" if self.view.paused_at else time_text(self.setup.now())[11:19] + "Z"
        self.change(paused_at=paused)

    def action_refresh(self) -> None:
        self._ask()

    def action_step(self, by: int) -> None:
        feed = self.setup.feed
        if isinstance(feed, ReplayFeed):
            feed.step(by)
            self._ask()
            self.change(note=f"frame {feed.position}")

    def action_copy(self) -> None:
        shot, chosen = self.shot, self.chosen
        if shot is None or chosen is None:
            return
        finding = shot.finding(chosen[0])
        told = [f"{finding.state} {finding.rule or ''}".rstrip(), *finding.says, *finding.evidence]
        self.copy_to_clipboard("\n".join([*told, *finding.next]))
        self.change(note="verdict, evidence and next commands are in the clipboard")

    def action_raw(self) -> None:
        shot, chosen = self.shot, self.chosen
        if shot is None or chosen is None:
            return
        runners = sequence(shot.timeline, "runners")
        own = [one for one in runners if text(one, "runnerId") == chosen[1].runner_id]
        document = {"runner": own[0], "flightRecorder": list(chosen[1].entries)}
        rows = json.dumps(document, indent=2, ensure_ascii=False).splitlines()
        self.push_screen(TextScreen(f"runner {chosen[1].runner_id}", rows))

    def action_logs(self) -> None:
        if self.chosen is not None and self.setup.actions is not None:
            self.change(note="asking for log lines")
            self.run_worker(self._read_logs, thread=True, group="act")

    def _read_logs(self) -> None:
        chosen, actions = self.chosen, self.setup.actions
        if chosen is None or actions is None:
            return
        try:
            rows = actions.log_lines(chosen[1])
        except CliError as error:
            self._say(f"no log lines: {'; '.join([error.what, *error.why])}")
            return
        title = f"log of {chosen[1]}"
        self._say("")
        self.call_from_thread(self.push_screen, TextScreen(title, rows or ["nothing printed"]))

    # Evidence, then change

    def action_capture(self) -> None:
        if self.chosen is not None and self.setup.actions is not None:
            self.change(note=f"capturing {self.chosen[1]}, which takes a few seconds")
            self.run_worker(self._capture, thread=True, group="act")

    def _capture(self) -> bool:
        chosen, actions = self.chosen, self.setup.actions
        if chosen is None or actions is None:
            return False
        try:
            path = actions.capture(*chosen)
        except CliError as error:
            self._say(f"no capture: {'; '.join([error.what, *error.why])}")
            return False
        self._captured.add(chosen[0].instance_id)
        self._say(f"captured to {path}")
        return True

    def action_cancel(self) -> None:
        chosen = self.chosen
        if chosen is None or chosen[0].task_id is None:
            self.change(note="no task is active here")
            return
        task_id = chosen[0].task_id
        done = chosen[0].instance_id in self._captured
        first = "" if done else "Evidence is captured first, because a cancel hides where it was."
        why = f"Every rank of {chosen[0].model_id} drops task {task_id}. {first}".strip()

        def decided(agreed: bool | None) -> None:
            if agreed:
                self.run_worker(lambda: self._cancel(chosen[0], task_id), thread=True, group="act")

        self.push_screen(
            ConfirmScreen(f"cancel task {task_id}", why, f"skulkctl cancel {task_id}"), decided
        )

    def _cancel(self, group: Group, task_id: str) -> None:
        actions = self.setup.actions
        if actions is None or (group.instance_id not in self._captured and not self._capture()):
            return
        try:
            said = actions.cancel(group, task_id)
        except CliError as error:
            self._say(f"not cancelled: {'; '.join([error.what, *error.why])}")
            return
        self._say(f"task {task_id}: {said}")
        self.call_from_thread(self._ask)

    def _say(self, note: str) -> None:
        self.call_from_thread(self.change, note=note)

    def _further_steps(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        """What the verdict advises and no key does; it is copied, to be typed elsewhere."""
        shot, chosen = self.shot, self.chosen
        if shot is None or chosen is None:
            return
        for command in shot.finding(chosen[0]).next:
            program, verb = command.split()[:2]
            if program == "skulkctl" and verb not in ("capture", "cancel", "logs"):
                yield command, "copies the command", partial(self._copy_command, command)

    def _copy_command(self, command: str) -> None:
        self.copy_to_clipboard(command)
        self.change(note=f"in the clipboard: {command}")

    def palette_entries(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        """What the palette offers now, spelled like the command line."""
        chosen = self.chosen
        if chosen is not None and self.setup.actions is not None:
            group, rank = chosen
            yield f"skulkctl capture {group.short}/{rank.rank}", "evidence", self.action_capture
            yield f"skulkctl logs {rank.node} --runner {rank.runner_id}", "log", self.action_logs
            if group.task_id and not self.view.read_only:
                yield f"skulkctl cancel {group.task_id}", "ends the request", self.action_cancel
        yield from self._further_steps()
        yield "skulkctl timeline -o json", "raw data of this rank", self.action_raw
        yield "skulkctl help timeline", "keys and letters", self.action_help
