"""`skulkctl top`: nodes, memory, GPU, runners and tokens per second, live."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, verb
from skulkctl.screen_options import SCREEN, columns, pace_s, view_of, wants_screen
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


@verb(app, "top", REACH, FORMAT, SCREEN, examples=EXAMPLES)
def top(call: Invocation) -> int:
    """Watch nodes and runners: memory, GPU, phase and speed. `t` opens the timeline.

    Without a terminal, and with -o json, it is printed once. Tokens per second are those that
    the runners recorded in the last 10 s.
    """
    every_s, view = pace_s(call), view_of(call)
    from skulkctl.tui.top_app import TopApp, TopFeed

    feed = TopFeed(call.target, call.timeout_s(15.0), call.daemon)
    if not wants_screen(call):
        write(_once(call, feed, view))
        return ExitCode.DONE
    from skulkctl.tui.actions import LiveActions
    from skulkctl.tui.timeline_app import Setup

    actions = LiveActions(call.target, call.timeout_s(15.0), Path.cwd())
    TopApp(Setup(feed, actions, view=view, every_s=every_s)).run()
    return ExitCode.DONE


def _once(call: Invocation, feed: TopFeed, view: View) -> str:
    from skulkctl.tui.lines import plain_text
    from skulkctl.tui.shots import Shot
    from skulkctl.tui.top_page import top_items, top_page
    from skulkctl.units import time_text

    frame = feed.poll()
    shot = Shot(frame.timeline, None, frame.names, replay=f"at {time_text(frame.at)[:19]}Z")
    items = top_items(shot, feed.nodes, feed.state)
    return call.style.single(
        "Top",
        items,
        str(shot.judgement.worst.state),
        lambda _: plain_text(top_page(shot, view, items, columns(), None), call.style.colour),
    )
