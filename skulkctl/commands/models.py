"""`skulkctl models`: the catalogue."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.command import new_app
from skulkctl.exits import ExitCode
from skulkctl.invocation import Invocation
from skulkctl.options import FORMAT, REACH, TABLE, verb

app = new_app()

EXAMPLES = """
  skulkctl models
  skulkctl models --downloaded
  skulkctl models --filter "qwen 4bit" --sort size
  skulkctl models -o json | jq -r '.items[] | select(.sizeBytes < 4e9).id'
"""


@verb(app, "models", REACH, FORMAT, TABLE, examples=EXAMPLES)
def models(
    call: Invocation,
    downloaded: Annotated[
        bool, typer.Option("--downloaded", help="Only models whose files are on a node.")
    ] = False,
    filter_: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="TEXT", help="Only models with all these words, in any case."
        ),
    ] = None,
) -> int:
    """List the models that the cluster knows: size, context, who has the files, what is placed.

    A model that is not here can be brought with skulkctl model import or pull.
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
