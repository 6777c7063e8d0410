"""`skulkctl preview`: every way to place a model, with its arithmetic, or why it does not work."""

from __future__ import annotations

from typing import Annotated

import typer

from skulkctl.cli import Invocation, Output, Reach, Table, new_app, values, verb
from skulkctl.exits import ExitCode
from skulkctl.output.stdout import write
from skulkctl.placement.orders import Where, fetch_previews, make_order

app = new_app()

EXAMPLES = """
  skulkctl preview mlx-community/Qwen3-8B-4bit
  skulkctl preview SmolLM2 --exclude kite3
  skulkctl preview SmolLM2 --only kite1 --only kite2 -o json
  skulkctl preview SmolLM2 -o wide --columns sharding,link,count,reason
"""


@verb(app, "preview", Where, Reach, Output, Table, examples=EXAMPLES)
def preview(
    call: Invocation,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=values.models,
            help="Model id, the part after the slash, or a unique prefix.",
        ),
    ],
) -> int:
    """Show how a model can be placed, without placing it.

    Prints one row for each possible sharding, link type and number of nodes, then the memory that
    each node needs (weights, overhead, KV cache and runner) and the memory that it has. Placements
    that are not possible are listed with the reason.

    MODEL may be any ORG/NAME. If it has no card, one is created from its config.json in the store,
    in the staging area or on the hub. The model need not be downloaded yet.
    """
    from skulkctl.placement.previews import PREVIEWS, preview_hints, preview_items, preview_screen

    order = make_order(call, model)
    items = preview_items(order.state, fetch_previews(call, order, need_files=False))
    shown = call.style.rows(PREVIEWS, items)
    is_plain = call.format == "table" and not call.style.columns
    write(preview_screen(items, shown, call.style.room) if is_plain and items else shown)
    if any(item["fits"] for item in items) and not _has_files(call, order.model_id):
        call.messages.note(f"no node has the files of {order.model_id} yet")
        call.messages.hint(f"download them first:  skulkctl model pull {order.model_id}")
    for hint in preview_hints(items) if items else [PREVIEWS.empty_hint]:
        call.messages.hint(hint)
    return ExitCode.DONE


def _has_files(call: Invocation, model_id: str) -> bool:
    """Whether a node has them, or a store that would get them."""
    from skulkctl.storage.pulling import has_store

    present = [model.id for model in call.daemon.models(downloaded=True).data]
    return model_id in present or has_store(call)
