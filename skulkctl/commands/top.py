"""`skulkctl top`: nodes, memory, GPU, runners and tokens per second, live."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, verb
from skulkctl.stdout import write

if TYPE_CHECKING:
    from skulkctl.tui.shots import View
    from skulkctl.tui.top_app import TopFeed

app = new_app()

EXAMPLES = """
  skulkctl top
  skulkctl top --once
  skulkctl top -o json | jq '.runners[] | {modelId, rank, tokensPerSecond}'
"""

_PIPE_COLUMNS = 120


@verb(app, "top", REACH, FORMAT, examples=EXAMPLES)
def top(
    call: Invocation,
    once: Annotated[
        bool, typer.Option("--once", help="Print the screen as text and leave.")
    ] = False,
    ascii_only: Annotated[
        bool, typer.Option("--ascii", help="Draw with plain letters only.")
    ] = False,
    slow: Annotated[
        bool, typer.Option("--slow", help="For slow links: ask and draw less often.")
    ] = False,
) -> int:
    """Watch nodes and runners: memory, GPU, phase and speed. `t` opens the timeline.

    Without a terminal, and with -o json, it is printed once. Tokens per second are those that
    the runners recorded in the last 10 s.
    """
    from skulkctl.tui.shots import View
    from skulkctl.tui.top_app import TopApp, TopFeed

    view = View(ascii=ascii_only, read_only=call.target.context.protected)
    feed = TopFeed(call.target, call.timeout_s(15.0))
    live = sys.stdin.isatty() and sys.stdout.isatty() and call.format in ("table", "wide")
    if once or not live:
        write(_once(call, feed, view))
        return ExitCode.DONE
    from skulkctl.tui.actions import LiveActions
    from skulkctl.tui.timeline_app import Setup

    actions = LiveActions(call.target, call.timeout_s(15.0), Path.cwd())
    TopApp(Setup(feed, actions, view=view, every_s=10.0 if slow else 2.0)).run()
    return ExitCode.DONE


def _once(call: Invocation, feed: TopFeed, view: View) -> str:
    import shutil

    from skulkctl.tui.lines import plain_text
    from skulkctl.tui.shots import Shot
    from skulkctl.tui.top_page import top_items, top_page
    from skulkctl.units import time_text

    frame = feed.poll()
    shot = Shot(frame.timeline, None, frame.names, replay=f"at {time_text(frame.at)[:19]}Z")
    items = top_items(shot, feed.nodes, feed.state)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_COLUMNS
    return call.style.single(
        "Top",
        items,
        str(shot.judgement.worst.state),
        lambda _: plain_text(top_page(shot, view, items, columns, None), call.style.colour),
    )
