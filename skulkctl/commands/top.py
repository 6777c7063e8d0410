"""`skulkctl top`: nodes, memory, GPU, runners and tokens per second, live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.cli import Invocation, Output, Reach, new_app, verb
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write
from skulkctl.ui.options import (
    Screen,
    columns,
    open_app,
    view_of,
    wants_screen,
)

if TYPE_CHECKING:
    from skulkctl.ui.snapshot import View

app = new_app()

EXAMPLES = """
  skulkctl top
  skulkctl top --once
  skulkctl top -o json | jq '.runners[] | {modelId, rank, tokensPerSecond}'
"""


@verb(app, "top", Reach, Output, Screen, examples=EXAMPLES)
def top(call: Invocation) -> int:
    """Watch the nodes: memory, CPU, GPU, links, instances. Opens `skulkctl ui` on its first page.

    Prints once if stdout is not a terminal, or with -o json. Tokens per second are averaged over
    the last 10 s.
    """
    view = view_of(call)
    if wants_screen(call):
        return open_app(call, "cluster", view)
    write(_once(call, view))
    return ExitCode.DONE


def _once(call: Invocation, view: View) -> str:
    from skulkctl.output.units import time_text
    from skulkctl.timeline.frames import Cluster, ClusterWatch
    from skulkctl.ui.lines import plain_text
    from skulkctl.ui.snapshot import Snapshot
    from skulkctl.ui.top_page import top_items, top_page

    frame = call.daemon.run(ClusterWatch().next_frame())
    cluster = frame.cluster or Cluster()
    when = f"at {time_text(frame.at)[:19]}Z"
    snapshot = Snapshot(frame.timeline, None, frame.names, replay=when)
    items = top_items(snapshot, cluster.nodes, cluster.state)
    return call.style.single(
        "Top",
        dict(items),
        str(snapshot.verdict.worst.state),
        lambda _: plain_text(top_page(snapshot, view, items, columns()), call.style.colour),
    )
