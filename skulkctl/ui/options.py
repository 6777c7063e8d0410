"""What `ui`, `timeline` and `top` share: options of the screen, and when and how to open it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skulkctl.cli import Invocation, Reach
from skulkctl.exits import ExitCode

if TYPE_CHECKING:
    from skulkctl.daemon.client import AsyncDaemon
    from skulkctl.ui.snapshot import View

_EVERY_S, _SLOW_EVERY_S = 2.0, 10.0
_SLOW_FPS = "5"
_PIPE_COLUMNS = 120


@dataclass(frozen=True)
class Screen:
    """How a screen is drawn, and how often it is refreshed."""

    once: Annotated[
        bool, typer.Option("--once", help="Print the screen once as text and exit.")
    ] = False
    ascii_only: Annotated[
        bool, typer.Option("--ascii", help="Draw with ASCII characters only.")
    ] = False
    slow: Annotated[
        bool, typer.Option("--slow", help="Poll and redraw less often, for slow links.")
    ] = False
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Disable everything that changes the cluster.")
    ] = False


def view_of(call: Invocation, span_s: float = 60.0, *, offline: bool = False) -> View:
    """How to draw; a protected context offers nothing that changes the cluster."""
    from skulkctl.ui.snapshot import View

    protected = not offline and call.target.context.protected
    screen = call.options(Screen)
    return View(span_s=span_s, ascii=screen.ascii_only, read_only=screen.read_only or protected)


def wants_screen(call: Invocation) -> bool:
    """Whether to open the screen; without a terminal, and for machines, it is printed once."""
    import os
    import sys

    # Another driver of Textual draws in a browser, without a terminal.
    tty = (sys.stdin.isatty() and sys.stdout.isatty()) or "TEXTUAL_DRIVER" in os.environ
    return tty and not call.options(Screen).once and call.format in ("table", "wide")


def pace_s(call: Invocation) -> float:
    """How often to poll. To be called before Textual is imported, which reads the frame rate."""
    import os

    if not call.options(Screen).slow:
        return _EVERY_S
    os.environ.setdefault("TEXTUAL_FPS", _SLOW_FPS)
    return _SLOW_EVERY_S


def screen_daemon(call: Invocation) -> AsyncDaemon:
    """The connection of a screen, which `-v` cannot write over."""
    from skulkctl.daemon.client import AsyncDaemon

    return AsyncDaemon(call.target, call.options(Reach).timeout_s)


def open_app(call: Invocation, mode: str, view: View, **given: Any) -> int:
    """Run the application on one of its pages until the user leaves it."""
    every_s = pace_s(call)
    from skulkctl.timeline.frames import ClusterWatch
    from skulkctl.ui.actions import Actions, Reader
    from skulkctl.ui.app import Setup, SkulkApp
    from skulkctl.ui.feed import LiveFeed

    daemon = screen_daemon(call)
    setup = Setup(
        LiveFeed(daemon, ClusterWatch()), Actions(daemon, Path.cwd()), Reader(daemon),
        context=context_name(call), mode=mode, view=view, every_s=every_s, **given,
    )  # fmt: skip
    SkulkApp(setup).run()
    return ExitCode.DONE


def context_name(call: Invocation) -> str:
    """The context, where it has a name of its own."""
    name = call.target.context.name or ""
    return "" if name == "-" else name


def columns() -> int:
    """The width to print for."""
    import os
    import shutil
    import sys

    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return _PIPE_COLUMNS
