"""What `timeline` and `top` share: how their screens are drawn, asked for and refreshed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from skulkctl.invocation import Invocation
from skulkctl.options import options

if TYPE_CHECKING:
    from skulkctl.tui.shots import View

_EVERY_S, _SLOW_EVERY_S = 2.0, 10.0
_SLOW_FPS = "5"
_PIPE_COLUMNS = 120


@options
def SCREEN(
    once: Annotated[
        bool, typer.Option("--once", help="Print the screen as text and leave.")
    ] = False,
    ascii_only: Annotated[
        bool, typer.Option("--ascii", help="Draw with plain letters only.")
    ] = False,
    slow: Annotated[
        bool, typer.Option("--slow", help="For slow links: ask and draw less often.")
    ] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer nothing that changes the cluster.")
    ] = False,
) -> None:
    """How a screen looks and how much it asks."""


def view_of(call: Invocation, span_s: float = 60.0, *, offline: bool = False) -> View:
    """How to draw; a protected context offers nothing that changes the cluster."""
    from skulkctl.tui.shots import View

    protected = not offline and call.target.context.protected
    return View(
        span_s=span_s,
        ascii=bool(call.options.get("ascii_only")),
        read_only=bool(call.options.get("read_only")) or protected,
    )


def wants_screen(call: Invocation) -> bool:
    """Whether to open the screen; without a terminal, and for machines, it is printed once."""
    import sys

    tty = sys.stdin.isatty() and sys.stdout.isatty()
    return tty and not call.options.get("once") and call.format in ("table", "wide")


def pace_s(call: Invocation) -> float:
    """How often to ask. Has to be called before Textual is imported, which reads the frame rate."""
    import os

    if not call.options.get("slow"):
        return _EVERY_S
    os.environ.setdefault("TEXTUAL_FPS", _SLOW_FPS)
    return _SLOW_EVERY_S


def columns() -> int:
    """The width to print for."""
    import os
    import shutil
    import sys

    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return _PIPE_COLUMNS
