"""`skulkctl timeline`: where every rank is, as a screen, as text, and as a check for cron."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skulkctl.cli import Invocation, Output, Reach, duration, new_app, verb
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write
from skulkctl.output.units import time_text
from skulkctl.ui.options import (
    Screen,
    columns,
    context_name,
    open_app,
    pace_s,
    view_of,
    wants_screen,
)

if TYPE_CHECKING:
    from skulkctl.timeline.frames import Frame
    from skulkctl.ui.snapshot import Snapshot, View
    from skulkctl.verdict import Limits, Verdict

app = new_app()

EXAMPLES = """
  skulkctl timeline                              lanes, verdict, drill-down; ? lists the keys
  skulkctl timeline --once                       the same screen as text
  skulkctl timeline --check || echo "stuck"      exit 7 if something is stuck
  skulkctl timeline --record hang.jsonl          record every frame
  skulkctl timeline --from hang.jsonl            replay the recording, offline
  skulkctl timeline --check -o json | jq .verdict.findings[0].culprit
"""

_LOOK_AGAIN_S = 1.0


@verb(app, "timeline", Reach, Output, Screen, examples=EXAMPLES)
def timeline(
    call: Invocation,
    check: Annotated[
        bool, typer.Option("--check", help="Print the verdict; exit 7 if it is a problem.")
    ] = False,
    record: Annotated[
        str | None,
        typer.Option("--record", metavar="FILE", help="Append every frame to this file."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="Show a recording or a capture bundle."),
    ] = None,
    hang_after_s: Annotated[
        float,
        typer.Option(
            "--hang-after",
            metavar="TIME",
            parser=duration,
            help="Report a hang after this long without progress (default: 30s).",
            show_default=False,
        ),
    ] = 30.0,
    span_s: Annotated[
        float,
        typer.Option(
            "--span",
            metavar="TIME",
            parser=duration,
            help="Time span of the lanes (default: 60s).",
            show_default=False,
        ),
    ] = 60.0,
) -> int:
    """Show what every rank of every instance does, which is stuck, since when, and what to do.

    The verdict is OK, WAITING, HANG, RECOVERED, RANK MISSING, NODE GONE or STALE. It is never
    HANG while any rank makes progress, nor while ranks wait for files or memory: that is WAITING,
    with the progress. --check and -o json print no screen; --check exits 7 unless the verdict is
    OK, WAITING or RECOVERED. --once is implied if stdout is not a terminal.
    """
    view = view_of(call, span_s, offline=source is not None)
    limits = _limits(hang_after_s)
    recorded = None if source is None else _recorded(source)
    if check or not wants_screen(call):
        return _print(call, recorded or _poll_frames(call, limits), view, limits, check, record)
    return _run(call, recorded, view, limits, record)


def _limits(seconds: float) -> Limits:
    from skulkctl.verdict import Limits

    usual = Limits()
    return Limits(hang_s=seconds, waiting_s=min(usual.waiting_s, seconds), straggler_s=2 * seconds)


def _recorded(source: str) -> list[Frame]:
    from skulkctl.timeline.recordings import read_frames

    return read_frames(Path(source))


def _poll_frames(call: Invocation, limits: Limits) -> list[Frame]:
    """The frames, newest last. A hang is confirmed by a second frame."""
    from skulkctl.timeline.frames import Watch
    from skulkctl.verdict import State, assess

    watch = Watch()
    first = call.daemon.run(watch.next_frame())
    worst = assess(first.timeline, names=first.names, limits=limits).worst
    if worst.state is not State.HANG:
        return [first]
    time.sleep(_LOOK_AGAIN_S)
    return [first, call.daemon.run(watch.next_frame())]


def _print(
    call: Invocation,
    frames: list[Frame],
    view: View,
    limits: Limits,
    check: bool,
    record: str | None,
) -> int:
    """The newest frame as text or JSON."""
    frames = frames[-2:]
    if record is not None:
        _record(record, frames)
    snapshot = _snapshot(call, frames, limits)
    verdict = snapshot.verdict
    write(_text(call, snapshot, view, check))
    for finding in verdict.findings if check else ():
        if finding.is_problem:
            for command in finding.next:
                call.messages.hint(command)
    return ExitCode.PROBLEM if check and verdict.worst.is_problem else ExitCode.DONE


def _record(path: str, frames: list[Frame]) -> None:
    from skulkctl.timeline.recordings import Recorder

    with closing(Recorder(Path(path))) as recorder:
        for frame in frames:
            recorder.add(frame)


def _snapshot(call: Invocation, frames: list[Frame], limits: Limits) -> Snapshot:
    from skulkctl.ui.snapshot import Snapshot

    *before, newest = frames
    previous = before[-1].timeline if before else None
    when = f"at {time_text(newest.at)[:19]}Z"
    return Snapshot(
        newest.timeline, previous, newest.names, limits, context_name(call), replay=when
    )


def _text(call: Invocation, snapshot: Snapshot, view: View, check: bool) -> str:
    from skulkctl.timeline.recordings import timeline_document
    from skulkctl.ui.lines import plain_text
    from skulkctl.ui.timeline_page import timeline_page

    verdict = snapshot.verdict

    def screen(_wide: bool) -> str:
        if check:
            return "".join(_check_lines(verdict))
        shown = replace(view, plain=not call.style.colour)
        page = timeline_page(snapshot, shown, columns())
        return plain_text(page, call.style.colour)

    content: dict[str, Any] = {"verdict": verdict.document()}
    content["timeline"] = timeline_document(snapshot.timeline)
    return call.style.single("Timeline", content, str(verdict.worst.state), screen)


def _check_lines(verdict: Verdict) -> list[str]:
    """Every instance in one paragraph, the most urgent first."""
    from skulkctl.output.terminal import printable
    from skulkctl.ui.banner import deadline_text

    lines = []
    for finding in verdict.findings or (verdict.worst,):
        name = f"{finding.instance_id or ''} {finding.model_id or ''}".strip()
        head = "  ".join(part for part in (str(finding.state), finding.rule, name) if part)
        lines.append(printable(f"{head}  {finding.summary}") + "\n")
        if finding.is_problem:
            details = [*finding.evidence, deadline_text(finding)]
            lines += [f"  {printable(detail)}\n" for detail in details if detail]
    return lines


def _run(
    call: Invocation, recorded: list[Frame] | None, view: View, limits: Limits, record: str | None
) -> int:
    from skulkctl.timeline.recordings import Recorder

    if recorded is not None:
        return _replay(call, recorded, view, limits)
    recorder = None if record is None else Recorder(Path(record))
    try:
        return open_app(call, "timeline", view, limits=limits, recorder=recorder)
    finally:
        if recorder is not None:
            recorder.close()


def _replay(call: Invocation, recorded: list[Frame], view: View, limits: Limits) -> int:
    pace_s(call)
    from skulkctl.ui.app import Setup, SkulkApp
    from skulkctl.ui.feed import ReplayFeed

    setup = Setup(
        ReplayFeed(recorded), context=context_name(call), mode="timeline", view=view, limits=limits
    )
    SkulkApp(setup).run()
    return ExitCode.DONE
