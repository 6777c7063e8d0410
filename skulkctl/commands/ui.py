"""`skulkctl ui`: the application over the whole cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from skulkctl.cli import Invocation, Reach, new_app, verb
from skulkctl.errors import UsageMistake
from skulkctl.ui.options import Screen, open_app, view_of, wants_screen

app = new_app()

EXAMPLES = """
  skulkctl ui                     nodes, instances, timeline, storage, traces and events
  skulkctl ui --page storage      begin with another page
  skulkctl ui --read-only         offer nothing that changes the cluster
  skulkctl ui --serve             the same in a browser on this machine, read-only
  skulkctl ui --serve 0.0.0.0:8080 --allow-changes
"""


class PageName(StrEnum):
    """Values of `--page`, in the order of their keys."""

    CLUSTER = "cluster"
    INSTANCES = "instances"
    TIMELINE = "timeline"
    STORAGE = "storage"
    TRACES = "traces"
    EVENTS = "events"


@verb(app, "ui", Reach, Screen, examples=EXAMPLES)
def ui(
    call: Invocation,
    page: Annotated[
        PageName, typer.Option("--page", metavar="PAGE", help="Begin with this page.")
    ] = PageName.CLUSTER,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the application to browsers.")
    ] = False,
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="[HOST:PORT]",
            help="Where --serve listens (default: 127.0.0.1:52480).",
            show_default=False,
        ),
    ] = None,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="With --serve: offer what changes the cluster."),
    ] = False,
) -> int:
    """Watch and operate the cluster in one application.

    Keys 1 to 6 switch between its pages; ? lists all keys, : opens the command palette. A protected
    context offers nothing that changes the cluster.

    --serve gives the same application to browsers, read-only unless --allow-changes. It needs the
    extra [web]. On an address that other machines reach, visitors must enter the cluster's token.
    """
    if serve:
        from skulkctl.web.command import serve_app

        return serve_app(call, page.value, address, allow_changes=allow_changes)
    if address is not None or allow_changes:
        given = address or "--allow-changes"
        raise UsageMistake(f"{given} needs --serve", hints=["skulkctl ui --serve [HOST:PORT]"])
    if not wants_screen(call):
        raise UsageMistake(
            "skulkctl ui needs a terminal",
            hints=["skulkctl status", "skulkctl top --once", "skulkctl ui --serve"],
        )
    return open_app(call, page.value, view_of(call))
