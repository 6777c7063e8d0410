"""`skulkctl timeline`: the deadlock screen, its plain-text twin, and the check for cron."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skulkctl.command import new_app
from skulkctl.errors import UsageMistake
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, options, verb
from skulkctl.screen_options import SCREEN, columns, pace_s, view_of, wants_screen
from skulkctl.stdout import write
from skulkctl.units import parse_duration, time_text

if TYPE_CHECKING:
    from skulkctl.tui.feed import Feed, Frame
    from skulkctl.tui.shots import Shot, View
    from skulkctl.verdict import Judgement, Limits

app = new_app()

EXAMPLES = """
  skulkctl timeline                              lanes, verdict, drill-down; ? lists the keys
  skulkctl timeline --once                       the same screen as text
  skulkctl timeline --check || echo "look at it" exit 7 when something is stuck
  skulkctl timeline --record hang.jsonl          keep what is seen
  skulkctl timeline --from hang.jsonl            look at it again, offline
  skulkctl timeline --check -o json | jq .verdict.findings[0].culprit
"""

_LOOK_AGAIN_S = 1.0


@options
def PATIENCE(
    hang_after: Annotated[
        str | None,
        typer.Option(
            "--hang-after",
            metavar="TIME",
            help="Report a hang after this long without progress (default: 30s).",
        ),
    ] = None,
    span: Annotated[
        str | None,
        typer.Option("--span", metavar="TIME", help="How much time the lanes show (60s)."),
    ] = None,
) -> None:
    """When standing still is a hang, and how much time is shown."""


@verb(app, "timeline", REACH, FORMAT, SCREEN, PATIENCE, examples=EXAMPLES)
def timeline(
    call: Invocation,
    check: Annotated[
        bool, typer.Option("--check", help="Print the verdict; exit 7 when it is a problem.")
    ] = False,
    record: Annotated[
        str | None, typer.Option("--record", metavar="FILE", help="Also append what is seen.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="Show a recording or a capture bundle."),
    ] = None,
) -> int:
    """Show where every rank of every placement is, who is stuck, since when, and what to do.

    The verdict is OK, WAITING, HANG, RECOVERED, RANK MISSING, NODE GONE or STALE. It is never
    HANG while any rank moves, nor while ranks wait for files or memory: that is WAITING, with the
    progress. With --check, and with -o json, nothing is drawn; --check exits 7 unless the verdict
    is OK, WAITING or RECOVERED. Without a terminal it is --once.
    """
    given = call.options
    span_s = _duration("--span", given.get("span") or "60s")
    view = view_of(call, span_s, offline=source is not None)
    limits = _limits(given.get("hang_after") or "30s")
    feed = _feed(call, source)
    if check or not wants_screen(call):
        return _print(call, feed, view, limits, check, record)
    return _run(call, feed, view, limits, record)


def _limits(hang_after: str) -> Limits:
    from skulkctl.verdict import Limits

    seconds = _duration("--hang-after", hang_after)
    usual = Limits()
    return Limits(hang_s=seconds, waiting_s=min(usual.waiting_s, seconds), straggler_s=2 * seconds)


def _duration(option: str, typed: str) -> float:
    try:
        return parse_duration(typed)
    except ValueError as error:
        raise UsageMistake(f"{option}: {error}") from None


def _feed(call: Invocation, source: str | None) -> Feed:
    from skulkctl.tui.feed import LiveFeed, ReplayFeed

    if source is None:
        return LiveFeed(call.target, call.timeout_s(15.0), call.daemon)
    from skulkctl.recordings import read_frames

    return ReplayFeed(read_frames(Path(source)))


def _print(
    call: Invocation, feed: Feed, view: View, limits: Limits, check: bool, record: str | None
) -> int:
    """One look (a hang is looked at twice), as text or JSON."""
    frames = _look(feed, limits)
    if record is not None:
        _record(record, frames)
    shot = _shot(call, frames, limits)
    judgement = shot.judgement
    write(_told(call, shot, view, judgement, check))
    for finding in judgement.findings if check else ():
        if finding.is_problem:
            for command in finding.next:
                call.talk.hint(command)
    return ExitCode.PROBLEM if check and judgement.worst.is_problem else ExitCode.DONE


def _look(feed: Feed, limits: Limits) -> list[Frame]:
    """The newest frame last. Nothing is called a hang that moves when looked at again."""
    from skulkctl.tui.feed import ReplayFeed
    from skulkctl.verdict import State, judge

    if isinstance(feed, ReplayFeed):
        feed.step(feed.count)
        before = feed.before()
        return [*([] if before is None else [before]), feed.poll()]
    first = feed.poll()
    worst = judge(first.timeline, names=first.names, limits=limits).worst
    if worst.state is not State.HANG:
        return [first]
    time.sleep(_LOOK_AGAIN_S)
    return [first, feed.poll()]


def _record(path: str, frames: list[Frame]) -> None:
    from skulkctl.recordings import Recorder

    recorder = Recorder(Path(path))
    for frame in frames:
        recorder.add(frame)
    recorder.close()


def _shot(call: Invocation, frames: list[Frame], limits: Limits) -> Shot:
    from skulkctl.tui.shots import Shot

    *before, newest = frames
    previous = before[-1].timeline if before else None
    when = f"at {time_text(newest.at)[:19]}Z"
    return Shot(newest.timeline, previous, newest.names, limits, _context(call), replay=when)


def _context(call: Invocation) -> str:
    name = call.target.context.name or ""
    return "" if name == "-" else name


def _told(call: Invocation, shot: Shot, view: View, judgement: Judgement, check: bool) -> str:
    from skulkctl.tui.lines import plain_text
    from skulkctl.tui.page import timeline_page

    content: dict[str, Any] = {"verdict": judgement.document(), "timeline": shot.timeline}

    def screen(_wide: bool) -> str:
        if check:
            return "".join(_check_lines(judgement))
        page = timeline_page(shot, view, columns(), None, keys=False)
        return plain_text(page, call.style.colour)

    return call.style.single("Timeline", content, str(judgement.worst.state), screen)


def _check_lines(judgement: Judgement) -> list[str]:
    """Every placement in one paragraph, the most urgent first."""
    from skulkctl.screen import printable
    from skulkctl.tui.banner import fate

    lines = []
    for finding in judgement.findings or (judgement.worst,):
        name = f"{finding.instance_id or ''} {finding.model_id or ''}".strip()
        head = "  ".join(one for one in (str(finding.state), finding.rule, name) if one)
        lines.append(printable(f"{head}  {' '.join(finding.says)}") + "\n")
        if finding.is_problem:
            told = [*finding.evidence, *([fate(finding)] if fate(finding) else [])]
            lines += [f"  {printable(one)}\n" for one in told]
    return lines


def _run(call: Invocation, feed: Feed, view: View, limits: Limits, record: str | None) -> int:
    every_s = pace_s(call)
    from skulkctl.recordings import Recorder
    from skulkctl.tui.actions import LiveActions
    from skulkctl.tui.timeline_app import Setup, TimelineApp

    recorder = None if record is None else Recorder(Path(record))
    actions = LiveActions(call.target, call.timeout_s(15.0), Path.cwd()) if feed.live else None
    setup = Setup(feed, actions, recorder, _context(call), view, limits, every_s)
    try:
        TimelineApp(setup).run()
    finally:
        if recorder is not None:
            recorder.close()
    return ExitCode.DONE
