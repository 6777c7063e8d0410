"""`skulkctl models`: the catalogue."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, Table, new_app, verb
from skulkctl.exits import ExitCode

app = new_app()

EXAMPLES = """
  skulkctl models
  skulkctl models --downloaded
  skulkctl models --filter "qwen 4bit" --sort size
  skulkctl models -o json | jq -r '.items[] | select(.sizeBytes < 4e9).id'
"""


@verb(app, "models", Reach, Output, Table, examples=EXAMPLES)
def models(
    call: Invocation,
    downloaded: Annotated[
        bool, typer.Option("--downloaded", help="List only models whose files are on a node.")
    ] = False,
    filter_: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="TEXT",
            help="List only models that contain all these words (case-insensitive).",
        ),
    ] = None,
) -> int:
    """List the known models: size, context, which nodes have the files, what is placed.

    To add a model, run: skulkctl model pull, or skulkctl model import.
    """
    from skulkctl.models.rows import MODELS, is_like, model_items

    daemon = call.daemon
    found = model_items(daemon.models(), daemon.models(downloaded=True), daemon.state())
    items = [
        item
        for item in found
        if (not downloaded or item["files"]["downloaded"])
        and (filter_ is None or is_like(item, filter_))
    ]
    call.show_rows(MODELS, items)
    return ExitCode.DONE
